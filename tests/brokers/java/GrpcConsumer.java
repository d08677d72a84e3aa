import java.io.BufferedReader;
import java.io.InputStreamReader;
import java.nio.charset.StandardCharsets;
import java.time.Duration;
import java.util.Collections;
import java.util.List;
import java.util.Map;
import java.util.concurrent.BlockingQueue;
import java.util.concurrent.ConcurrentHashMap;
import java.util.concurrent.LinkedBlockingQueue;
import org.apache.rocketmq.client.apis.ClientConfiguration;
import org.apache.rocketmq.client.apis.ClientServiceProvider;
import org.apache.rocketmq.client.apis.consumer.ConsumeResult;
import org.apache.rocketmq.client.apis.consumer.FilterExpression;
import org.apache.rocketmq.client.apis.consumer.PushConsumer;
import org.apache.rocketmq.client.apis.consumer.SimpleConsumer;
import org.apache.rocketmq.client.apis.message.MessageView;

/**
 * A gRPC consumer that does what it is told, a line of the standard input at a time. Arguments: kind (simple or push),
 * the proxy's address, group, topic. It prints one JSON object a line, each with "event".
 *
 * <pre>
 * simple: receive SECONDS       the next message, invisible for this time: "received", or "nothing"
 *         ack KEY               "done"
 *         hide KEY SECONDS      it is invisible for this time from now on: "done"
 * push:   (a message comes)     "came"
 *         answer KEY ok|failed  what the listener returns for it: "done"
 * both:   quit
 * </pre>
 */
public class GrpcConsumer {
    private static final Map<String, MessageView> held = new ConcurrentHashMap<>();
    private static final Map<String, BlockingQueue<ConsumeResult>> answers = new ConcurrentHashMap<>();

    public static void main(String[] arguments) throws Exception {
        ClientServiceProvider provider = ClientServiceProvider.loadService();
        ClientConfiguration configuration = ClientConfiguration.newBuilder()
            .setEndpoints(arguments[1]).enableSsl(false).setRequestTimeout(Duration.ofSeconds(20)).build();
        Map<String, FilterExpression> everything = Collections.singletonMap(arguments[3], FilterExpression.SUB_ALL);
        SimpleConsumer simple = null;
        PushConsumer push = null;
        if (arguments[0].equals("simple")) {
            simple = provider.newSimpleConsumerBuilder().setClientConfiguration(configuration)
                .setConsumerGroup(arguments[2]).setAwaitDuration(Duration.ofSeconds(1))
                .setSubscriptionExpressions(everything).build();
        } else {
            push = provider.newPushConsumerBuilder().setClientConfiguration(configuration)
                .setConsumerGroup(arguments[2]).setConsumptionThreadCount(20)
                .setSubscriptionExpressions(everything).setMessageListener(GrpcConsumer::consume).build();
        }
        print("ready", null);
        BufferedReader input = new BufferedReader(new InputStreamReader(System.in, StandardCharsets.UTF_8));
        for (String line = input.readLine(); line != null && !line.equals("quit"); line = input.readLine()) {
            String[] words = line.split(" ");
            try {
                if (simple != null) {
                    obey(simple, words);
                } else {
                    queue(words[1]).put(words[2].equals("ok") ? ConsumeResult.SUCCESS : ConsumeResult.FAILURE);
                    print("done", null);
                }
            } catch (Exception failure) {
                failure.printStackTrace();
                print("failed", null);
            }
        }
        System.exit(0); // without waiting for messages that are held
    }

    private static void obey(SimpleConsumer consumer, String[] words) throws Exception {
        switch (words[0]) {
            case "receive":
                List<MessageView> found = consumer.receive(1, Duration.ofMillis(Math.round(Double.parseDouble(words[1]) * 1000)));
                if (found.isEmpty()) {
                    print("nothing", null);
                }
                for (MessageView message : found) {
                    held.put(message.getMessageId().toString(), message);
                    print("received", message);
                }
                return;
            case "ack":
                consumer.ack(held.remove(words[1]));
                break;
            case "hide":
                consumer.changeInvisibleDuration(held.get(words[1]), Duration.ofMillis(Math.round(Double.parseDouble(words[2]) * 1000)));
                break;
            default:
                throw new IllegalArgumentException(words[0]);
        }
        print("done", null);
    }

    private static ConsumeResult consume(MessageView message) {
        print("came", message);
        try {
            return queue(message.getMessageId().toString()).take();
        } catch (InterruptedException interrupted) {
            return ConsumeResult.FAILURE;
        }
    }

    private static BlockingQueue<ConsumeResult> queue(String key) {
        return answers.computeIfAbsent(key, made -> new LinkedBlockingQueue<>());
    }

    private static synchronized void print(String event, MessageView message) {
        StringBuilder line = new StringBuilder("{\"event\": \"" + event + "\"");
        if (message != null) {
            line.append(", \"key\": \"").append(message.getMessageId()).append("\", \"attempt\": ").append(message.getDeliveryAttempt());
        }
        System.out.println(line.append('}'));
        System.out.flush();
    }
}
