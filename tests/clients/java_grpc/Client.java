import java.io.BufferedReader;
import java.io.InputStreamReader;
import java.nio.ByteBuffer;
import java.nio.charset.StandardCharsets;
import java.time.Duration;
import java.util.Collections;
import java.util.Map;
import java.util.concurrent.ConcurrentHashMap;
import org.apache.rocketmq.client.apis.ClientConfiguration;
import org.apache.rocketmq.client.apis.ClientException;
import org.apache.rocketmq.client.apis.ClientServiceProvider;
import org.apache.rocketmq.client.apis.consumer.FilterExpression;
import org.apache.rocketmq.client.apis.consumer.SimpleConsumer;
import org.apache.rocketmq.client.apis.message.MessageBuilder;
import org.apache.rocketmq.client.apis.message.MessageView;
import org.apache.rocketmq.client.apis.producer.Producer;
import org.apache.rocketmq.client.apis.producer.Transaction;
import org.apache.rocketmq.client.apis.producer.TransactionResolution;

/**
 * A service with the stock gRPC client for Java. tests/clients/foreign_client.py has the lines that it takes and prints.
 */
public class Client {
    private static final String MARK = "RECONCILER_OUTBOX";
    private static final Map<String, Transaction> open = new ConcurrentHashMap<>();
    private static final Map<String, String> bodies = new ConcurrentHashMap<>();
    private static final Map<String, TransactionResolution> toChecks = new ConcurrentHashMap<>();

    public static void main(String[] arguments) throws Exception {
        ClientServiceProvider provider = ClientServiceProvider.loadService();
        ClientConfiguration configuration = ClientConfiguration.newBuilder()
            .setEndpoints(arguments[0]).enableSsl(false).setRequestTimeout(Duration.ofSeconds(20)).build();
        String topic = arguments[1];
        SimpleConsumer consumer = provider.newSimpleConsumerBuilder().setClientConfiguration(configuration)
            .setConsumerGroup(arguments[3]).setAwaitDuration(Duration.ofSeconds(1))
            .setSubscriptionExpressions(Collections.singletonMap(topic, FilterExpression.SUB_ALL)).build();
        Producer producer = provider.newProducerBuilder().setClientConfiguration(configuration).setTopics(topic)
            .setTransactionChecker(Client::check).build();
        Thread receiving = new Thread(() -> receive(consumer));
        receiving.setDaemon(true);
        receiving.start();
        say("ready", "", "");
        BufferedReader input = new BufferedReader(new InputStreamReader(System.in, StandardCharsets.UTF_8));
        for (String line = input.readLine(); line != null; line = input.readLine()) {
            String[] words = line.split(" ");
            MessageBuilder message = provider.newMessageBuilder().setTopic(topic).setTag("paid").setKeys("order-1")
                .setBody(words[1].getBytes(StandardCharsets.UTF_8));
            switch (words[0]) {
                case "send":
                    say("sent", producer.send(message.build()).getMessageId().toString(), words[1]);
                    break;
                case "half":
                    Transaction begun = producer.beginTransaction();
                    message.addProperty(MARK, words[2]);
                    String key = producer.send(message.build(), begun).getMessageId().toString();
                    open.put(key, begun);
                    bodies.put(key, words[1]);
                    say("half", key, words[1]);
                    break;
                case "answer":
                    toChecks.put(words[1], resolution(words[3]));
                    end(open.get(words[1]), words[2]);
                    say("ended", words[1], bodies.get(words[1]));
                    break;
                default:
                    throw new IllegalArgumentException(line);
            }
        }
    }

    private static void end(Transaction transaction, String word) throws ClientException {
        if (word.equals("commit")) {
            transaction.commit();
        } else if (word.equals("rollback")) {
            transaction.rollback();
        }
    }

    private static TransactionResolution check(MessageView message) {
        String key = message.getMessageId().toString();
        say("check", key, text(message));
        return toChecks.getOrDefault(key, TransactionResolution.UNKNOWN);
    }

    private static void receive(SimpleConsumer consumer) {
        while (true) {
            try {
                for (MessageView message : consumer.receive(16, Duration.ofSeconds(30))) {
                    say("received", message.getMessageId().toString(), text(message));
                    consumer.ack(message);
                }
            } catch (ClientException notNow) {
                notNow.printStackTrace();
            }
        }
    }

    private static TransactionResolution resolution(String word) {
        switch (word) {
            case "commit": return TransactionResolution.COMMIT;
            case "rollback": return TransactionResolution.ROLLBACK;
            default: return TransactionResolution.UNKNOWN;
        }
    }

    private static String text(MessageView message) {
        ByteBuffer body = message.getBody().duplicate();
        return StandardCharsets.UTF_8.decode(body).toString();
    }

    private static synchronized void say(String event, String key, String body) {
        System.out.println("{\"event\": \"" + event + "\", \"key\": \"" + key + "\", \"body\": \"" + body + "\"}");
        System.out.flush();
    }
}
