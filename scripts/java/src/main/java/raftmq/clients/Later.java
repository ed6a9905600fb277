package raftmq.clients;

import static raftmq.clients.Kit.check;
import static raftmq.clients.Kit.message;

import java.util.ArrayList;
import java.util.List;
import java.util.Map;
import java.util.Set;
import java.util.concurrent.ConcurrentHashMap;
import org.apache.rocketmq.client.consumer.DefaultMQPushConsumer;
import org.apache.rocketmq.client.consumer.listener.ConsumeConcurrentlyStatus;
import org.apache.rocketmq.client.consumer.listener.ConsumeOrderlyStatus;
import org.apache.rocketmq.client.consumer.listener.MessageListenerConcurrently;
import org.apache.rocketmq.client.consumer.listener.MessageListenerOrderly;
import org.apache.rocketmq.client.exception.MQClientException;
import org.apache.rocketmq.client.producer.DefaultMQProducer;
import org.apache.rocketmq.client.producer.LocalTransactionState;
import org.apache.rocketmq.client.producer.SendResult;
import org.apache.rocketmq.client.producer.TransactionListener;
import org.apache.rocketmq.client.producer.TransactionMQProducer;
import org.apache.rocketmq.common.message.Message;
import org.apache.rocketmq.common.message.MessageExt;
import org.apache.rocketmq.tools.admin.DefaultMQAdminExt;

/** What the server does later: delays, transactions, retries, dead letters. */
final class Later {
    private Later() {}

    static void register(Map<String, Main.Test> tests) {
        tests.put("delay", Later::delay);
        tests.put("transaction", Later::transaction);
        tests.put("retry", Later::retry);
        tests.put("retry-orderly", Later::retryOrderly);
        tests.put("dead-letter", Later::deadLetter);
    }

    private static void delay(Kit k) throws Exception {
        String topic = k.topic("t", 2);
        DefaultMQProducer p = k.producer();
        Seen seen = new Seen();
        Map<String, Long> arrived = new ConcurrentHashMap<>();
        DefaultMQPushConsumer c = k.push(k.unique("cg"));
        c.subscribe(topic, "*");
        c.registerMessageListener((MessageListenerConcurrently) (messages, context) -> {
            for (MessageExt m : messages) {
                arrived.putIfAbsent(Kit.text(m.getBody()), System.currentTimeMillis());
                seen.add(m);
            }
            return ConsumeConcurrentlyStatus.CONSUME_SUCCESS;
        });
        c.start();
        int[] seconds = {1, 5, 10};
        Map<String, Long> due = new ConcurrentHashMap<>();
        for (int i = 0; k.more(i, 30); i++) {
            String body = "body " + i;
            Message m = message(topic, "T", body);
            m.setDelayTimeLevel(1 + i % 3);
            long begin = System.currentTimeMillis();
            k.acknowledged(() -> p.send(m));
            due.put(body, begin + seconds[i % 3] * 1000L);
        }
        k.consumed(seen, due.keySet());
        due.forEach((body, time) -> check(arrived.get(body) >= time - 50, "%s arrived %d ms early", body, time - arrived.get(body)));
        if (!k.moves()) {
            due.forEach((body, time) -> check(arrived.get(body) < time + 5000, "%s arrived %d ms late", body, arrived.get(body) - time));
        }
    }

    /** Committed, rolled back, and asked about: each message in its end state. */
    private static void transaction(Kit k) throws Exception {
        String topic = k.topic("t", 2);
        Set<String> asked = ConcurrentHashMap.newKeySet();
        TransactionMQProducer p = new TransactionMQProducer(k.unique("pg"));
        p.setTransactionListener(new TransactionListener() {
            @Override
            public LocalTransactionState executeLocalTransaction(Message m, Object arg) {
                return (LocalTransactionState) arg;
            }

            @Override
            public LocalTransactionState checkLocalTransaction(MessageExt m) {
                String body = Kit.text(m.getBody());
                return asked.add(body) && body.endsWith("twice") ? LocalTransactionState.UNKNOW
                        : body.contains("drop") ? LocalTransactionState.ROLLBACK_MESSAGE : LocalTransactionState.COMMIT_MESSAGE;
            }
        });
        k.started(p);
        Seen seen = new Seen();
        k.push(k.unique("cg"), topic, "*", seen);
        Set<String> wanted = ConcurrentHashMap.newKeySet(), dropped = ConcurrentHashMap.newKeySet();
        LocalTransactionState[] states = {LocalTransactionState.COMMIT_MESSAGE, LocalTransactionState.ROLLBACK_MESSAGE, LocalTransactionState.UNKNOW};
        for (int i = 0; k.more(i, 24); i++) {
            LocalTransactionState state = states[i % 3];
            String body = state + (i % 2 == 0 ? " keep " : " drop ") + i + (i % 4 < 2 ? "" : " twice");
            k.acknowledged(() -> p.sendMessageInTransaction(message(topic, "T", body), state));
            boolean keep = state == LocalTransactionState.COMMIT_MESSAGE || state == LocalTransactionState.UNKNOW && body.contains("keep");
            (keep ? wanted : dropped).add(body);
        }
        k.consumed(seen, wanted);
        // An end that was lost with its leader is asked about: a rollback may come out as the check says then.
        Set<String> never = k.moves() ? Set.of() : dropped;
        check(seen.bodies().stream().noneMatch(never::contains), "rolled back, and seen: %s", seen.bodies());
        if (k.moves()) {
            check(seen.bodies().stream().noneMatch(b -> b.startsWith("UNKNOW drop")), "rolled back by a check, and seen: %s", seen.bodies());
        } else {
            check(asked.stream().allMatch(b -> b.startsWith("UNKNOW")), "asked about what had ended: %s", asked);
        }
        check(asked.stream().anyMatch(b -> b.endsWith("twice")), "nothing was asked about twice");
    }

    /** Failed once, delivered again by the retry topic with its count and names. */
    private static void retry(Kit k) throws Exception {
        String topic = k.topic("t", 2), cg = k.unique("cg");
        DefaultMQProducer p = k.producer();
        Seen failed = new Seen(), seen = new Seen();
        DefaultMQPushConsumer c = k.push(cg);
        c.subscribe(topic, "*");
        c.registerMessageListener((MessageListenerConcurrently) (messages, context) -> {
            context.setDelayLevelWhenNextConsume(1);
            if (messages.get(0).getReconsumeTimes() == 0) {
                messages.forEach(failed::add);
                return ConsumeConcurrentlyStatus.RECONSUME_LATER;
            }
            messages.forEach(seen::add);
            return ConsumeConcurrentlyStatus.CONSUME_SUCCESS;
        });
        c.start();
        List<String> sent = new ArrayList<>();
        for (int i = 0; k.more(i, 20); i++) {
            String body = "body " + i;
            k.acknowledged(() -> p.send(message(topic, "T", body)));
            sent.add(body);
        }
        k.consumed(seen, sent);
        for (MessageExt m : seen.messages()) {
            check(m.getTopic().equals(topic), "a retried message's topic is %s", m.getTopic());
            check(k.moves() || m.getReconsumeTimes() == 1, "tried %d times", m.getReconsumeTimes());
        }
    }

    /** An ordered consumer tries the same message again before the next one. */
    private static void retryOrderly(Kit k) throws Exception {
        String topic = k.topic("t", 1), cg = k.unique("cg");
        DefaultMQProducer p = k.producer();
        Seen seen = new Seen();
        Set<String> once = ConcurrentHashMap.newKeySet();
        DefaultMQPushConsumer c = k.push(cg);
        c.subscribe(topic, "*");
        c.setSuspendCurrentQueueTimeMillis(100);
        c.registerMessageListener((MessageListenerOrderly) (messages, context) -> {
            for (MessageExt m : messages) {
                if (once.add(Kit.text(m.getBody()))) {
                    return ConsumeOrderlyStatus.SUSPEND_CURRENT_QUEUE_A_MOMENT;
                }
            }
            messages.forEach(seen::add);
            return ConsumeOrderlyStatus.SUCCESS;
        });
        c.start();
        List<String> sent = new ArrayList<>();
        for (int i = 0; k.more(i, 20); i++) {
            String body = "body " + i;
            k.acknowledged(() -> p.send(message(topic, "T", body)));
            sent.add(body);
        }
        k.consumed(seen, sent);
        long last = -1;
        for (MessageExt m : seen.messages()) {
            check(m.getQueueOffset() == last + 1 || k.moves() && m.getQueueOffset() <= last + 1, "%d after %d", m.getQueueOffset(), last);
            last = m.getQueueOffset();
        }
    }

    private static void deadLetter(Kit k) throws Exception {
        String topic = k.topic("t", 2), cg = k.unique("cg");
        DefaultMQProducer p = k.producer();
        Seen dead = new Seen();
        DefaultMQPushConsumer c = k.push(cg);
        c.subscribe(topic, "*");
        c.setMaxReconsumeTimes(1);
        c.registerMessageListener((MessageListenerConcurrently) (messages, context) -> {
            context.setDelayLevelWhenNextConsume(1);
            return ConsumeConcurrentlyStatus.RECONSUME_LATER;
        });
        c.start();
        List<String> sent = new ArrayList<>();
        for (int i = 0; k.more(i, 10); i++) {
            String body = "body " + i;
            SendResult r = k.acknowledged(() -> p.send(message(topic, "T", body)));
            check(r.getMsgId() != null, "no id");
            sent.add(body);
        }
        DefaultMQAdminExt admin = k.admin();
        Kit.await("a route of the dead letters' topic", Kit.LONG, () -> { // a consumer asks for it every 30 s only
            try {
                return admin.examineTopicRouteInfo("%DLQ%" + cg) != null;
            } catch (MQClientException e) {
                return false;
            }
        });
        k.push(k.unique("dead"), "%DLQ%" + cg, "*", dead);
        k.consumed(dead, sent);
        for (MessageExt m : dead.messages()) {
            check(topic.equals(m.getProperty("RETRY_TOPIC")) || topic.equals(m.getProperty("DLQ_ORIGIN_TOPIC")), "a dead letter's properties: %s", m.getProperties());
        }
    }
}
