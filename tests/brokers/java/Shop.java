import java.io.BufferedReader;
import java.io.InputStreamReader;
import java.nio.charset.StandardCharsets;
import java.sql.Connection;
import java.sql.DriverManager;
import java.sql.PreparedStatement;
import java.sql.ResultSet;
import java.sql.SQLException;
import java.util.concurrent.CountDownLatch;
import java.util.concurrent.ExecutorService;
import java.util.concurrent.Executors;
import org.apache.rocketmq.client.consumer.DefaultMQPushConsumer;
import org.apache.rocketmq.client.consumer.listener.ConsumeConcurrentlyStatus;
import org.apache.rocketmq.client.consumer.listener.MessageListenerConcurrently;
import org.apache.rocketmq.client.producer.LocalTransactionState;
import org.apache.rocketmq.client.producer.TransactionListener;
import org.apache.rocketmq.client.producer.TransactionMQProducer;
import org.apache.rocketmq.common.consumer.ConsumeFromWhere;
import org.apache.rocketmq.common.message.Message;
import org.apache.rocketmq.common.message.MessageExt;

/**
 * A shop of stock clients. Arguments: service, name servers, topic, SQLite file. `sell` takes "try order how" a line; its
 * local transactions are rows of `orders`, from which it answers check-backs. `bill` writes a row of `bills` for each
 * message that it is given. Both print what they did, and run until they are killed.
 */
public class Shop {
    /** The defaults are over before a starved machine has fetched a route. */
    private static final int SEND_MILLISECONDS = 30_000;
    /** A broker asks the producers that it knows. The default is half a minute. */
    private static final int HEARTBEAT_MILLISECONDS = 1_000;
    private static final int LOCK_MILLISECONDS = 60_000;
    /** Local transactions that never end, and keep their threads, have room beside others. */
    private static final int THREADS = 64;

    private static Connection database;

    public static void main(String[] arguments) throws Exception {
        database = DriverManager.getConnection("jdbc:sqlite:" + arguments[3] + "?busy_timeout=" + LOCK_MILLISECONDS);
        if (arguments[0].equals("sell")) {
            sell(arguments[1], arguments[2]);
        } else {
            bill(arguments[1], arguments[2]);
        }
        new CountDownLatch(1).await();
    }

    private static void sell(String nameServers, String topic) throws Exception {
        TransactionMQProducer producer = new TransactionMQProducer("producer_" + topic);
        producer.setNamesrvAddr(nameServers);
        producer.setSendMsgTimeout(SEND_MILLISECONDS);
        producer.setMqClientApiTimeout(SEND_MILLISECONDS);
        producer.setHeartbeatBrokerInterval(HEARTBEAT_MILLISECONDS);
        producer.setTransactionListener(new Orders());
        producer.start();
        producer.fetchPublishMessageQueues(topic); // many first sales at once would not all wait for the route
        ExecutorService threads = Executors.newFixedThreadPool(THREADS);
        BufferedReader lines = new BufferedReader(new InputStreamReader(System.in, StandardCharsets.UTF_8));
        for (String line = lines.readLine(); line != null; line = lines.readLine()) {
            String[] words = line.split(" ");
            threads.submit(() -> {
                try {
                    Message message = new Message(topic, "paid", words[1], words[0].getBytes(StandardCharsets.UTF_8));
                    producer.sendMessageInTransaction(message, words[2]);
                    print("sold", words[0]);
                } catch (Throwable failure) {
                    failure.printStackTrace();
                }
            });
        }
    }

    private static void bill(String nameServers, String topic) throws Exception {
        DefaultMQPushConsumer consumer = new DefaultMQPushConsumer("group_" + topic);
        consumer.setNamesrvAddr(nameServers);
        consumer.setMqClientApiTimeout(SEND_MILLISECONDS);
        consumer.setPersistConsumerOffsetInterval(HEARTBEAT_MILLISECONDS);
        consumer.setConsumeFromWhere(ConsumeFromWhere.CONSUME_FROM_FIRST_OFFSET);
        consumer.subscribe(topic, "*");
        consumer.registerMessageListener((MessageListenerConcurrently) (messages, context) -> {
            for (MessageExt message : messages) {
                write("INSERT INTO bills VALUES (?)", text(message));
            }
            return ConsumeConcurrentlyStatus.CONSUME_SUCCESS;
        });
        consumer.start();
    }

    private static synchronized void write(String statement, String... values) {
        try (PreparedStatement written = database.prepareStatement(statement)) {
            for (int index = 0; index < values.length; index++) {
                written.setString(index + 1, values[index]);
            }
            written.executeUpdate();
        } catch (SQLException failed) {
            throw new IllegalStateException(failed);
        }
    }

    private static synchronized String statusOf(String order) throws SQLException {
        try (PreparedStatement select = database.prepareStatement("SELECT status FROM orders WHERE number = ?")) {
            select.setString(1, order);
            ResultSet found = select.executeQuery();
            return found.next() ? found.getString(1) : "none";
        }
    }

    private static String text(Message message) {
        return new String(message.getBody(), StandardCharsets.UTF_8);
    }

    private static synchronized void print(String what, String attempt) {
        System.out.println(what + " " + attempt);
        System.out.flush();
    }

    /** What becomes of an order is told with it. */
    private static class Orders implements TransactionListener {
        @Override
        public LocalTransactionState executeLocalTransaction(Message message, Object how) {
            String order = message.getKeys();
            print("half " + message.getTransactionId(), text(message));
            switch ((String) how) {
                case "paid":
                    write("INSERT INTO orders VALUES (?, 'PAID')", order);
                    return LocalTransactionState.COMMIT_MESSAGE;
                case "asked": // its answer comes with the broker's question
                    write("INSERT INTO orders VALUES (?, 'PAID')", order);
                    return LocalTransactionState.UNKNOW;
                case "cancelled":
                    write("INSERT INTO orders VALUES (?, 'CANCELLED')", order);
                    return LocalTransactionState.ROLLBACK_MESSAGE;
                case "failed":
                    return LocalTransactionState.ROLLBACK_MESSAGE;
                case "abandoned":
                    return LocalTransactionState.UNKNOW;
                default: // "dies" between commit and END
                    write("INSERT INTO orders VALUES (?, 'PAID')", order);
                    print("committed", text(message));
                    return await();
            }
        }

        private static LocalTransactionState await() {
            try {
                new CountDownLatch(1).await();
            } catch (InterruptedException over) {
                Thread.currentThread().interrupt();
            }
            return LocalTransactionState.UNKNOW;
        }

        @Override
        public LocalTransactionState checkLocalTransaction(MessageExt message) {
            // Of a try that is under way, or that was given up for another one, the row of its order tells nothing.
            if (text(message).startsWith("dies-") || text(message).startsWith("first-")) {
                return LocalTransactionState.UNKNOW;
            }
            try {
                switch (statusOf(message.getKeys())) {
                    case "PAID": return LocalTransactionState.COMMIT_MESSAGE;
                    case "CANCELLED": return LocalTransactionState.ROLLBACK_MESSAGE;
                    default: return LocalTransactionState.UNKNOW;
                }
            } catch (SQLException failed) {
                return LocalTransactionState.UNKNOW;
            }
        }
    }
}
