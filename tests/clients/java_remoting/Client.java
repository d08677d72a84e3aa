import java.io.BufferedReader;
import java.io.InputStreamReader;
import java.nio.charset.StandardCharsets;
import java.util.Map;
import java.util.concurrent.BlockingQueue;
import java.util.concurrent.ConcurrentHashMap;
import java.util.concurrent.LinkedBlockingQueue;
import org.apache.rocketmq.client.consumer.DefaultMQPushConsumer;
import org.apache.rocketmq.client.consumer.listener.ConsumeConcurrentlyStatus;
import org.apache.rocketmq.client.consumer.listener.MessageListenerConcurrently;
import org.apache.rocketmq.client.producer.LocalTransactionState;
import org.apache.rocketmq.client.producer.TransactionListener;
import org.apache.rocketmq.client.producer.TransactionMQProducer;
import org.apache.rocketmq.client.producer.TransactionSendResult;
import org.apache.rocketmq.common.consumer.ConsumeFromWhere;
import org.apache.rocketmq.common.message.Message;
import org.apache.rocketmq.common.message.MessageExt;

/**
 * A service with the stock remoting client for Java. tests/clients/foreign_client.py has the lines that it takes and
 * prints.
 */
public class Client {
    private static final String MARK = "RECONCILER_OUTBOX";
    private static final String KEY = "UNIQ_KEY";
    /** The default, 3 s, is over before a starved machine has fetched a route. */
    private static final int SEND_MILLISECONDS = 30_000;
    private static final Map<String, BlockingQueue<LocalTransactionState>> answers = new ConcurrentHashMap<>();
    private static final Map<String, LocalTransactionState> toChecks = new ConcurrentHashMap<>();

    public static void main(String[] arguments) throws Exception {
        String topic = arguments[1];
        DefaultMQPushConsumer consumer = new DefaultMQPushConsumer(arguments[3]);
        consumer.setNamesrvAddr(arguments[0]);
        consumer.setInstanceName("receiver");
        consumer.setConsumeFromWhere(ConsumeFromWhere.CONSUME_FROM_FIRST_OFFSET);
        consumer.subscribe(topic, "*");
        consumer.registerMessageListener((MessageListenerConcurrently) (messages, context) -> {
            for (MessageExt message : messages) {
                say("received", message.getProperty(KEY), text(message));
            }
            return ConsumeConcurrentlyStatus.CONSUME_SUCCESS;
        });
        consumer.start();
        TransactionMQProducer producer = new TransactionMQProducer(arguments[2]);
        producer.setNamesrvAddr(arguments[0]);
        producer.setInstanceName("sender");
        producer.setSendMsgTimeout(SEND_MILLISECONDS);
        producer.setTransactionListener(new Listener());
        producer.start();
        say("ready", "", "");
        BufferedReader input = new BufferedReader(new InputStreamReader(System.in, StandardCharsets.UTF_8));
        for (String line = input.readLine(); line != null; line = input.readLine()) {
            String[] words = line.split(" ");
            Message message = new Message(topic, "paid", "order-1", words[1].getBytes(StandardCharsets.UTF_8));
            switch (words[0]) {
                case "send":
                    say("sent", producer.send(message).getMsgId(), words[1]);
                    break;
                case "half":
                    message.putUserProperty(MARK, words[2]);
                    new Thread(() -> half(producer, message, words[1])).start();
                    break;
                case "answer":
                    toChecks.put(words[1], state(words[3]));
                    queue(words[1]).put(state(words[2]));
                    break;
                default:
                    throw new IllegalArgumentException(line);
            }
        }
    }

    private static void half(TransactionMQProducer producer, Message message, String body) {
        try {
            TransactionSendResult result = producer.sendMessageInTransaction(message, null);
            say("ended", result.getMsgId(), body);
        } catch (Exception failure) {
            failure.printStackTrace();
            System.exit(4);
        }
    }

    private static class Listener implements TransactionListener {
        @Override
        public LocalTransactionState executeLocalTransaction(Message message, Object argument) {
            say("half", message.getTransactionId(), text(message));
            try {
                return queue(message.getTransactionId()).take();
            } catch (InterruptedException interrupted) {
                return LocalTransactionState.UNKNOW;
            }
        }

        @Override
        public LocalTransactionState checkLocalTransaction(MessageExt message) {
            say("check", message.getProperty(KEY), text(message));
            return toChecks.getOrDefault(message.getProperty(KEY), LocalTransactionState.UNKNOW);
        }
    }

    private static LocalTransactionState state(String word) {
        switch (word) {
            case "commit": return LocalTransactionState.COMMIT_MESSAGE;
            case "rollback": return LocalTransactionState.ROLLBACK_MESSAGE;
            default: return LocalTransactionState.UNKNOW;
        }
    }

    private static BlockingQueue<LocalTransactionState> queue(String key) {
        return answers.computeIfAbsent(key, made -> new LinkedBlockingQueue<>());
    }

    private static String text(Message message) {
        return new String(message.getBody(), StandardCharsets.UTF_8);
    }

    private static synchronized void say(String event, String key, String body) {
        System.out.println("{\"event\": \"" + event + "\", \"key\": \"" + key + "\", \"body\": \"" + body + "\"}");
        System.out.flush();
    }
}
