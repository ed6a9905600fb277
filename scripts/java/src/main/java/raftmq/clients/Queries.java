package raftmq.clients;

import static raftmq.clients.Kit.check;
import static raftmq.clients.Kit.message;

import java.util.ArrayList;
import java.util.HashSet;
import java.util.List;
import java.util.Map;
import java.util.Set;
import org.apache.rocketmq.client.QueryResult;
import org.apache.rocketmq.client.consumer.DefaultMQPushConsumer;
import org.apache.rocketmq.client.consumer.rebalance.AllocateMessageQueueAveragely;
import org.apache.rocketmq.client.exception.MQClientException;
import org.apache.rocketmq.client.producer.DefaultMQProducer;
import org.apache.rocketmq.client.producer.SendResult;
import org.apache.rocketmq.common.MQVersion;
import org.apache.rocketmq.common.consumer.ConsumeFromWhere;
import org.apache.rocketmq.common.message.Message;
import org.apache.rocketmq.common.message.MessageExt;
import org.apache.rocketmq.tools.admin.DefaultMQAdminExt;

/** Looking for messages, and traces of them. */
final class Queries {
    private Queries() {}

    static void register(Map<String, Main.Test> tests) {
        tests.put("query", Queries::query);
        tests.put("trace", Queries::trace);
    }

    private static void query(Kit k) throws Exception {
        String topic = k.topic("t", 2);
        DefaultMQProducer p = k.producer();
        DefaultMQAdminExt admin = k.admin();
        List<SendResult> results = new ArrayList<>();
        long begin = System.currentTimeMillis() - 1000;
        for (int i = 0; i < 20; i++) {
            Message m = new Message(topic, "T", "even" + i % 2 + " key" + i, Kit.bytes("body " + i));
            results.add(k.acknowledged(() -> p.send(m)));
        }
        k.letMove();
        for (int i = 0; i < 20; i++) {
            SendResult r = results.get(i);
            String body = "body " + i;
            for (String id : List.of(r.getMsgId(), r.getOffsetMsgId())) {
                MessageExt m = found(k, body + " by id " + id, () -> admin.viewMessage(topic, id));
                check(Kit.text(m.getBody()).equals(body), "%s: %s", id, Kit.text(m.getBody()));
            }
        }
        for (int parity = 0; parity < 2; parity++) {
            String key = "even" + parity;
            QueryResult q = found(k, key, () -> {
                QueryResult r = admin.queryMessage(topic, key, 32, begin, System.currentTimeMillis());
                if (new HashSet<>(bodies(r)).size() < 10) {
                    throw new MQClientException(208, "found " + bodies(r));
                }
                return r;
            });
            check(k.moves() || q.getMessageList().size() == 10, "key %s: %s", key, bodies(q));
            check(q.getMessageList().stream().allMatch(m -> (" " + m.getKeys() + " ").contains(" " + key + " ")), "key %s: %s", key, q.getMessageList());
        }
        try {
            QueryResult none = admin.queryMessage(topic, "nothing", 32, begin, System.currentTimeMillis());
            throw new AssertionError("a key that no message has: " + none);
        } catch (MQClientException e) {
            check(e.getResponseCode() == 208, "a key that no message has: %s", e);
        }
    }

    private static List<String> bodies(QueryResult r) {
        List<String> all = new ArrayList<>();
        r.getMessageList().forEach(m -> all.add(Kit.text(m.getBody())));
        return all;
    }

    /** Index and route of the asking client may be a moment behind. */
    private static <T> T found(Kit k, String what, java.util.concurrent.Callable<T> ask) throws Exception {
        Object[] result = new Object[1];
        Exception[] last = new Exception[1];
        try {
            Kit.await(what, k.moves() ? Kit.LONG : 10, () -> {
                try {
                    result[0] = ask.call();
                } catch (Exception e) {
                    last[0] = e;
                }
                return result[0] != null;
            });
        } catch (AssertionError e) {
            e.initCause(last[0]);
            throw e;
        }
        @SuppressWarnings("unchecked")
        T t = (T) result[0];
        return t;
    }

    /**
     * The clients' own trace: one record of the sender and one of the consumer, found by the message's id. A 5.x consumer
     * traces only messages that a 5.x broker stored with its region: none of RocketMQ 4.9's, and none here.
     */
    private static void trace(Kit k) throws Exception {
        String topic = k.topic("t", 1);
        DefaultMQProducer p = k.started(new DefaultMQProducer(k.unique("pg"), null, true, null));
        Seen seen = new Seen();
        k.letMove();
        k.collect(traced(k, topic), seen);
        SendResult r = k.acknowledged(() -> p.send(message(topic, "T", "traced")));
        k.consumed(seen, List.of("traced"));
        DefaultMQAdminExt admin = k.admin();
        Set<String> kinds = new HashSet<>();
        Set<String> wanted = MQVersion.CURRENT_VERSION < MQVersion.Version.V5_0_0.ordinal() ? Set.of("Pub", "SubAfter") : Set.of("Pub");
        Kit.await("trace records " + wanted + " of " + r.getMsgId(), k.moves() ? Kit.LONG : 40, () -> {
            try {
                QueryResult q = admin.queryMessage("RMQ_SYS_TRACE_TOPIC", r.getMsgId(), 32, 0, System.currentTimeMillis() + 10_000);
                for (MessageExt m : q.getMessageList()) {
                    for (String record : Kit.text(m.getBody()).split("\u0002")) {
                        kinds.add(record.split("\u0001")[0]);
                    }
                }
            } catch (MQClientException e) {
                return false; // not there yet
            }
            return kinds.containsAll(wanted);
        });
    }

    private static DefaultMQPushConsumer traced(Kit k, String topic) throws Exception {
        DefaultMQPushConsumer c = k.config(new DefaultMQPushConsumer(k.unique("cg"), null, new AllocateMessageQueueAveragely(), true, null));
        c.setConsumeFromWhere(ConsumeFromWhere.CONSUME_FROM_FIRST_OFFSET);
        c.subscribe(topic, "*");
        k.end(c::shutdown);
        return c;
    }
}
