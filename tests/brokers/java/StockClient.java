import java.nio.charset.StandardCharsets;
import java.util.ArrayList;
import java.util.Collections;
import java.util.List;
import java.util.Map;
import java.util.TreeMap;
import java.util.concurrent.ConcurrentHashMap;
import java.util.concurrent.CopyOnWriteArrayList;
import java.util.concurrent.atomic.AtomicInteger;
import java.util.function.BooleanSupplier;
import org.apache.rocketmq.client.QueryResult;
import org.apache.rocketmq.client.consumer.DefaultMQPullConsumer;
import org.apache.rocketmq.client.consumer.DefaultMQPushConsumer;
import org.apache.rocketmq.client.consumer.PullResult;
import org.apache.rocketmq.client.consumer.listener.ConsumeConcurrentlyStatus;
import org.apache.rocketmq.client.consumer.listener.ConsumeOrderlyStatus;
import org.apache.rocketmq.client.consumer.listener.MessageListenerConcurrently;
import org.apache.rocketmq.client.consumer.listener.MessageListenerOrderly;
import org.apache.rocketmq.client.producer.DefaultMQProducer;
import org.apache.rocketmq.client.producer.LocalTransactionState;
import org.apache.rocketmq.client.producer.SendResult;
import org.apache.rocketmq.client.producer.TransactionListener;
import org.apache.rocketmq.client.producer.TransactionMQProducer;
import org.apache.rocketmq.client.producer.TransactionSendResult;
import org.apache.rocketmq.common.consumer.ConsumeFromWhere;
import org.apache.rocketmq.common.message.Message;
import org.apache.rocketmq.common.message.MessageExt;
import org.apache.rocketmq.common.message.MessageQueue;

/**
 * The stock Java client against a broker. Arguments: scenario, name servers, topic. It prints one JSON object a
 * line, each with "event"; the caller asserts on them. Exit code 0 only if the scenario ran to its end.
 */
public class StockClient {
    /** The default, 3 s, is over before a starved machine has fetched a route. */
    private static final int SEND_MILLISECONDS = 30_000;

    private static String nameServers;
    private static String topic;

    public static void main(String[] arguments) {
        nameServers = arguments[1];
        topic = arguments[2];
        try {
            play(arguments[0]);
        } catch (Throwable failure) {
            failure.printStackTrace();
            System.exit(4); // the client leaves threads behind, which would keep the JVM alive for ever
        }
        print("end");
        System.exit(0);
    }

    private static void play(String scenario) throws Exception {
        switch (scenario) {
            case "rebalance": rebalance(); break;
            case "retry": retry(); break;
            case "orderly": orderly(); break;
            case "transaction": transaction(); break;
            case "lookup": lookup(); break;
            case "shop": shop(); break;
            default: throw new IllegalArgumentException(scenario);
        }
    }

    private static void rebalance() throws Exception {
        Map<String, String> received = new ConcurrentHashMap<>();
        AtomicInteger deliveries = new AtomicInteger();
        MessageListenerConcurrently listener = (messages, context) -> {
            for (MessageExt message : messages) {
                deliveries.incrementAndGet();
                received.put(text(message), message.getMsgId());
            }
            return ConsumeConcurrentlyStatus.CONSUME_SUCCESS;
        };
        DefaultMQPushConsumer first = consumer("first");
        first.registerMessageListener(listener);
        first.start();
        until("first member has all queues", 60, () -> queues(first).size() == 4);
        DefaultMQPushConsumer second = consumer("second");
        second.registerMessageListener(listener);
        second.start();
        until("two queues each", 60, () -> queues(first).size() == 2 && queues(second).size() == 2);
        print("shared", "first", queues(first).toString(), "second", queues(second).toString());
        DefaultMQProducer producer = producer();
        for (int number = 0; number < 40; number++) {
            producer.send(message("a" + number));
        }
        until("40 messages", 60, () -> received.size() == 40);
        second.shutdown();
        until("first member takes over", 60, () -> queues(first).size() == 4);
        for (int number = 0; number < 40; number++) {
            producer.send(message("b" + number));
        }
        until("80 messages", 60, () -> received.size() == 80);
        print("received", "distinct", received.size(), "deliveries", deliveries.get());
        first.shutdown();
        producer.shutdown();
    }

    private static void retry() throws Exception {
        List<String> seen = new CopyOnWriteArrayList<>();
        DefaultMQPushConsumer consumer = consumer("retry");
        consumer.setMaxReconsumeTimes(2);
        consumer.registerMessageListener((MessageListenerConcurrently) (messages, context) -> {
            MessageExt message = messages.get(0);
            seen.add(text(message) + message.getReconsumeTimes());
            print("attempt", "body", text(message), "times", message.getReconsumeTimes(),
                "topic", message.getTopic(), "id", message.getMsgId());
            boolean accepted = text(message).equals("once") && message.getReconsumeTimes() == 1;
            return accepted ? ConsumeConcurrentlyStatus.CONSUME_SUCCESS : ConsumeConcurrentlyStatus.RECONSUME_LATER;
        });
        consumer.start();
        DefaultMQProducer producer = producer();
        print("sent", "body", "once", "id", producer.send(message("once")).getMsgId());
        print("sent", "body", "never", "id", producer.send(message("never")).getMsgId());
        until("retries", 90, () -> seen.contains("once1") && seen.contains("never2"));
        DefaultMQPullConsumer pull = new DefaultMQPullConsumer("dlq_" + topic);
        pull.setNamesrvAddr(nameServers);
        pull.start();
        String deadLetters = "%DLQ%" + group();
        List<MessageExt> dead = new ArrayList<>();
        until("dead letter", 60, () -> {
            try {
                for (MessageQueue queue : pull.fetchSubscribeMessageQueues(deadLetters)) {
                    PullResult result = pull.pull(queue, "*", 0, 32);
                    if (result.getMsgFoundList() != null) {
                        dead.addAll(result.getMsgFoundList());
                    }
                }
            } catch (Exception notYet) {
                return false;
            }
            return !dead.isEmpty();
        });
        for (MessageExt message : dead) {
            print("dead", "body", text(message), "times", message.getReconsumeTimes(),
                "origin", message.getProperty("RETRY_TOPIC"), "id", message.getMsgId());
        }
        pull.shutdown();
        consumer.shutdown();
        producer.shutdown();
    }

    private static void orderly() throws Exception {
        Map<String, List<Integer>> seen = new ConcurrentHashMap<>();
        AtomicInteger count = new AtomicInteger();
        AtomicInteger refusals = new AtomicInteger();
        List<DefaultMQPushConsumer> members = new ArrayList<>();
        for (String name : new String[] {"first", "second"}) {
            DefaultMQPushConsumer member = consumer(name);
            member.registerMessageListener((MessageListenerOrderly) (messages, context) -> {
                String[] parts = text(messages.get(0)).split(":");
                if (parts[1].equals("10") && refusals.getAndIncrement() == 0) {
                    context.setSuspendCurrentQueueTimeMillis(100);
                    return ConsumeOrderlyStatus.SUSPEND_CURRENT_QUEUE_A_MOMENT;
                }
                seen.computeIfAbsent(parts[0], shard -> new CopyOnWriteArrayList<>()).add(Integer.valueOf(parts[1]));
                count.incrementAndGet();
                return ConsumeOrderlyStatus.SUCCESS;
            });
            member.start();
            members.add(member);
        }
        until("two queues each", 60, () -> members.stream().allMatch(member -> queues(member).size() == 2));
        DefaultMQProducer producer = producer();
        for (int number = 0; number < 25; number++) {
            for (int shard = 0; shard < 4; shard++) {
                producer.send(message(shard + ":" + number), (queues, message, key) -> queues.get((Integer) key), shard);
            }
        }
        until("100 messages", 120, () -> count.get() >= 100);
        for (Map.Entry<String, List<Integer>> entry : new TreeMap<>(seen).entrySet()) {
            print("shard", "name", entry.getKey(), "order", entry.getValue().toString());
        }
        print("refusals", "count", refusals.get());
        for (DefaultMQPushConsumer member : members) {
            member.shutdown();
        }
        producer.shutdown();
    }

    private static void transaction() throws Exception {
        List<String> received = new CopyOnWriteArrayList<>();
        Map<String, AtomicInteger> checks = new ConcurrentHashMap<>();
        DefaultMQPushConsumer consumer = consumer("transaction");
        consumer.registerMessageListener((MessageListenerConcurrently) (messages, context) -> {
            for (MessageExt message : messages) {
                received.add(text(message));
                print("received", "body", text(message), "id", message.getMsgId());
            }
            return ConsumeConcurrentlyStatus.CONSUME_SUCCESS;
        });
        consumer.start();
        TransactionMQProducer producer = new TransactionMQProducer("producer_" + topic);
        producer.setNamesrvAddr(nameServers);
        producer.setInstanceName("transaction");
        producer.setSendMsgTimeout(SEND_MILLISECONDS);
        producer.setTransactionListener(new TransactionListener() {
            @Override
            public LocalTransactionState executeLocalTransaction(Message message, Object argument) {
                return (LocalTransactionState) argument;
            }

            @Override
            public LocalTransactionState checkLocalTransaction(MessageExt message) {
                int times = checks.computeIfAbsent(text(message), body -> new AtomicInteger()).incrementAndGet();
                print("check", "body", text(message), "id", message.getMsgId(), "transaction",
                    String.valueOf(message.getTransactionId()), "topic", message.getTopic());
                switch (text(message)) {
                    case "check-commit": return LocalTransactionState.COMMIT_MESSAGE;
                    case "check-rollback": return LocalTransactionState.ROLLBACK_MESSAGE;
                    default: return times < 2 ? LocalTransactionState.UNKNOW : LocalTransactionState.COMMIT_MESSAGE;
                }
            }
        });
        producer.start();
        send(producer, "commit", LocalTransactionState.COMMIT_MESSAGE);
        send(producer, "rollback", LocalTransactionState.ROLLBACK_MESSAGE);
        send(producer, "check-commit", LocalTransactionState.UNKNOW);
        send(producer, "check-rollback", LocalTransactionState.UNKNOW);
        send(producer, "check-twice", LocalTransactionState.UNKNOW);
        until("three deliveries and the checks", 90, () -> received.contains("commit")
            && received.contains("check-commit") && received.contains("check-twice")
            && checks.containsKey("check-rollback") && checks.get("check-twice").get() >= 2);
        producer.shutdown();
        consumer.shutdown();
    }

    /** Orders that end in commit, in rollback, or in nothing: their producer dies; some at the second try. The group takes all that comes. */
    private static void shop() throws Exception {
        List<String> received = new CopyOnWriteArrayList<>();
        DefaultMQPushConsumer consumer = consumer("shop");
        consumer.registerMessageListener((MessageListenerConcurrently) (messages, context) -> {
            for (MessageExt message : messages) {
                received.add(text(message));
            }
            return ConsumeConcurrentlyStatus.CONSUME_SUCCESS;
        });
        consumer.start();
        TransactionMQProducer producer = new TransactionMQProducer("producer_" + topic);
        producer.setNamesrvAddr(nameServers);
        producer.setInstanceName("shop");
        producer.setSendMsgTimeout(SEND_MILLISECONDS);
        producer.setTransactionListener(new TransactionListener() {
            @Override
            public LocalTransactionState executeLocalTransaction(Message message, Object argument) {
                return (LocalTransactionState) argument;
            }

            @Override
            public LocalTransactionState checkLocalTransaction(MessageExt message) {
                return LocalTransactionState.UNKNOW;
            }
        });
        producer.start();
        for (int number = 0; number < 20; number++) {
            send(producer, "paid-" + number, LocalTransactionState.COMMIT_MESSAGE);
        }
        for (int number = 0; number < 5; number++) {
            send(producer, "cancelled-" + number, LocalTransactionState.ROLLBACK_MESSAGE);
            send(producer, "lost-" + number, LocalTransactionState.UNKNOW);
            send(producer, "abandoned-" + number, LocalTransactionState.UNKNOW);
        }
        for (int number = 0; number < 2; number++) {
            send(producer, "first-try-" + number, "twice-" + number, LocalTransactionState.UNKNOW);
            send(producer, "second-try-" + number, "twice-" + number, LocalTransactionState.COMMIT_MESSAGE);
        }
        producer.shutdown();
        until("everything that was committed", 90, () -> received.size() >= 22);
        print("sold");
        until("the test is over", 120, () -> new java.io.File("over").exists()); // the group stays connected
        consumer.shutdown();
    }

    private static void send(TransactionMQProducer producer, String body, LocalTransactionState state) throws Exception {
        send(producer, body, body, state);
    }

    private static void send(TransactionMQProducer producer, String body, String key, LocalTransactionState state)
        throws Exception {
        Message sent = message(body);
        sent.setKeys(key);
        TransactionSendResult result = producer.sendMessageInTransaction(sent, state);
        print("sent", "body", body, "id", result.getMsgId(), "status", result.getSendStatus().name(),
            "state", result.getLocalTransactionState().name());
    }

    private static void lookup() throws Exception {
        DefaultMQProducer producer = producer();
        Message message = message("found");
        message.setKeys("order-1 customer-9");
        message.setTags("TagA");
        SendResult sent = producer.send(message);
        print("sent", "id", sent.getMsgId(), "offset_id", sent.getOffsetMsgId());
        producer.send(message("other"));
        List<MessageExt> found = Collections.synchronizedList(new ArrayList<>());
        until("indexed", 30, () -> {
            try {
                found.add(producer.viewMessage(topic, sent.getMsgId()));
                return true;
            } catch (Exception notYet) {
                return false;
            }
        });
        print("view", "by", "unique key", "body", text(found.get(0)), "keys", found.get(0).getKeys(),
            "tags", found.get(0).getTags(), "queue_offset", found.get(0).getQueueOffset());
        print("view", "by", "offset id", "body", text(producer.viewMessage(topic, sent.getOffsetMsgId())));
        long now = System.currentTimeMillis();
        for (String key : new String[] {"order-1", "customer-9"}) {
            QueryResult result = producer.queryMessage(topic, key, 16, now - 3_600_000, now + 3_600_000);
            print("query", "key", key, "count", result.getMessageList().size(),
                "body", text(result.getMessageList().get(0)), "id", result.getMessageList().get(0).getMsgId());
        }
        try {
            producer.queryMessage(topic, "no-such-key", 16, now - 3_600_000, now + 3_600_000);
            print("query", "key", "no-such-key", "count", -1);
        } catch (Exception absent) {
            print("query", "key", "no-such-key", "count", 0);
        }
        producer.shutdown();
    }

    private static String group() {
        return "group_" + topic;
    }

    private static DefaultMQPushConsumer consumer(String instance) throws Exception {
        DefaultMQPushConsumer consumer = new DefaultMQPushConsumer(group());
        consumer.setNamesrvAddr(nameServers);
        consumer.setInstanceName(instance);
        consumer.setConsumeFromWhere(ConsumeFromWhere.CONSUME_FROM_FIRST_OFFSET);
        consumer.subscribe(topic, "*");
        return consumer;
    }

    private static DefaultMQProducer producer() throws Exception {
        DefaultMQProducer producer = new DefaultMQProducer("sender_" + topic);
        producer.setNamesrvAddr(nameServers);
        producer.setInstanceName("sender");
        producer.setSendMsgTimeout(SEND_MILLISECONDS);
        producer.start();
        return producer;
    }

    private static Message message(String body) {
        return new Message(topic, body.getBytes(StandardCharsets.UTF_8));
    }

    private static String text(Message message) {
        return new String(message.getBody(), StandardCharsets.UTF_8);
    }

    /** Queues of the topic (not of the retry topic) that the member holds now. */
    private static List<Integer> queues(DefaultMQPushConsumer member) {
        List<Integer> numbers = new ArrayList<>();
        for (MessageQueue queue : member.getDefaultMQPushConsumerImpl().getRebalanceImpl().getProcessQueueTable().keySet()) {
            if (queue.getTopic().equals(topic)) {
                numbers.add(queue.getQueueId());
            }
        }
        Collections.sort(numbers);
        return numbers;
    }

    private static void until(String what, int seconds, BooleanSupplier condition) throws InterruptedException {
        long deadline = System.nanoTime() + seconds * 1_000_000_000L;
        while (!condition.getAsBoolean()) {
            if (System.nanoTime() > deadline) {
                print("late", "what", what);
                System.exit(3);
            }
            Thread.sleep(50);
        }
    }

    private static synchronized void print(String event, Object... fields) {
        StringBuilder line = new StringBuilder("{\"event\":").append(quoted(event));
        for (int index = 0; index < fields.length; index += 2) {
            Object value = fields[index + 1];
            line.append(',').append(quoted((String) fields[index])).append(':');
            line.append(value instanceof Number ? value.toString() : quoted(String.valueOf(value)));
        }
        System.out.println(line.append('}'));
        System.out.flush();
    }

    private static String quoted(String text) {
        return '"' + text.replace("\\", "\\\\").replace("\"", "\\\"") + '"';
    }
}
