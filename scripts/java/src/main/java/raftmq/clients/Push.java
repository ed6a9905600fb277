package raftmq.clients;

import static raftmq.clients.Kit.check;
import static raftmq.clients.Kit.message;

import java.util.ArrayList;
import java.util.Date;
import java.util.HashMap;
import java.util.List;
import java.util.Map;
import java.util.Set;
import java.util.concurrent.ConcurrentHashMap;
import java.util.stream.Collectors;
import org.apache.rocketmq.client.consumer.DefaultMQPushConsumer;
import org.apache.rocketmq.client.consumer.MessageSelector;
import org.apache.rocketmq.client.consumer.listener.ConsumeConcurrentlyStatus;
import org.apache.rocketmq.client.consumer.listener.ConsumeOrderlyStatus;
import org.apache.rocketmq.client.consumer.listener.MessageListenerConcurrently;
import org.apache.rocketmq.client.consumer.listener.MessageListenerOrderly;
import org.apache.rocketmq.client.producer.DefaultMQProducer;
import org.apache.rocketmq.common.UtilAll;
import org.apache.rocketmq.common.consumer.ConsumeFromWhere;
import org.apache.rocketmq.common.message.Message;
import org.apache.rocketmq.common.message.MessageExt;
import org.apache.rocketmq.common.message.MessageQueue;

/** Push consumers. */
final class Push {
    private Push() {}

    static void register(Map<String, Main.Test> tests) {
        tests.put("push-group", Push::group);
        tests.put("push-orderly", Push::orderly);
        tests.put("push-broadcast", Push::broadcast);
        tests.put("push-tags", Push::tags);
        tests.put("push-sql92", Push::sql92);
        tests.put("push-where", Push::where);
        tests.put("push-suspend", Push::suspend);
    }

    /** Two consumers of a group share the queues; when one leaves the other has them all, and goes on where it was. */
    private static void group(Kit k) throws Exception {
        String topic = k.topic("t", 4), cg = k.unique("cg");
        DefaultMQProducer p = k.producer();
        Seen all = new Seen(), first = new Seen(), second = new Seen();
        DefaultMQPushConsumer one = k.push(cg), two = k.push(cg);
        collect(k, one, topic, all, first);
        collect(k, two, topic, all, second);
        List<String> sent = new ArrayList<>();
        for (int i = 0; i < 5000 && (first.size() == 0 || second.size() == 0); i++) {
            send(k, p, topic, sent);
            Thread.sleep(20);
        }
        for (int i = 0; k.more(i, 100); i++) {
            send(k, p, topic, sent);
        }
        Kit.await("all consumed", Kit.LONG, () -> all.bodies().containsAll(sent));
        one.shutdown();
        List<String> late = new ArrayList<>();
        for (int i = 0; i < 40; i++) {
            send(k, p, topic, sent);
            late.add(sent.get(sent.size() - 1));
        }
        Kit.await("the one left gets all queues", Kit.LONG, () -> second.bodies().containsAll(late));
    }

    private static void send(Kit k, DefaultMQProducer p, String topic, List<String> sent) throws Exception {
        String body = "body " + sent.size();
        k.acknowledged(() -> p.send(message(topic, "T", body)));
        sent.add(body);
    }

    private static void collect(Kit k, DefaultMQPushConsumer c, String topic, Seen all, Seen own) throws Exception {
        c.subscribe(topic, "*");
        c.registerMessageListener((MessageListenerConcurrently) (messages, context) -> {
            messages.forEach(all::add);
            messages.forEach(own::add);
            return ConsumeConcurrentlyStatus.CONSUME_SUCCESS;
        });
        c.start();
    }

    /** Each queue in order, one message at a time: no two at once, none before its elders. */
    private static void orderly(Kit k) throws Exception {
        String topic = k.topic("t", 4), cg = k.unique("cg");
        DefaultMQProducer p = k.producer();
        Seen seen = new Seen();
        Set<Integer> busy = ConcurrentHashMap.newKeySet();
        Set<String> overlaps = ConcurrentHashMap.newKeySet();
        for (int i = 0; i < 2; i++) {
            DefaultMQPushConsumer c = k.push(cg);
            c.subscribe(topic, "*");
            c.registerMessageListener((MessageListenerOrderly) (messages, context) -> {
                int queue = messages.get(0).getQueueId();
                if (!busy.add(queue)) {
                    overlaps.add("queue " + queue);
                }
                messages.forEach(seen::add);
                busy.remove(queue);
                return ConsumeOrderlyStatus.SUCCESS;
            });
            c.start();
        }
        List<String> sent = new ArrayList<>();
        for (int i = 0; k.more(i, 100); i++) {
            String body = "body " + i;
            int queue = i % 4;
            k.acknowledged(() -> p.send(message(topic, "T", body), (queues, m, arg) -> queues.stream().filter(q -> q.getQueueId() == queue).findFirst().get(), null));
            sent.add(body);
        }
        k.consumed(seen, sent);
        check(overlaps.isEmpty(), "consumed by two at once: %s", overlaps);
        Map<Integer, Long> last = new HashMap<>();
        for (MessageExt m : seen.messages()) {
            Long before = last.put(m.getQueueId(), m.getQueueOffset());
            // Whoever takes a queue over begins at the offset that was stored last: it may go back, and never skips.
            check(before == null || m.getQueueOffset() <= before + 1, "queue %d: %d after %d", m.getQueueId(), m.getQueueOffset(), before);
            check(before == null || m.getQueueOffset() == before + 1 || k.moves(), "queue %d: %d after %d", m.getQueueId(), m.getQueueOffset(), before);
        }
    }

    private static void broadcast(Kit k) throws Exception {
        String topic = k.topic("t", 4), cg = k.unique("cg");
        DefaultMQProducer p = k.producer();
        Seen[] seen = {new Seen(), new Seen()};
        for (Seen s : seen) {
            DefaultMQPushConsumer c = k.push(cg);
            Names.broadcasting(c);
            c.subscribe(topic, "*");
            k.collect(c, s);
        }
        List<String> sent = new ArrayList<>();
        for (int i = 0; k.more(i, 50); i++) {
            String body = "body " + i;
            k.acknowledged(() -> p.send(message(topic, "T", body)));
            sent.add(body);
        }
        for (Seen s : seen) {
            k.consumed(s, sent);
        }
    }

    private static void tags(Kit k) throws Exception {
        String topic = k.topic("t", 4);
        DefaultMQProducer p = k.producer();
        Seen ab = new Seen();
        k.push(k.unique("ab"), topic, "A || B", ab);
        Map<String, String> tagOf = new HashMap<>();
        for (int i = 0; k.more(i, 60); i++) {
            String tag = new String[] {"A", "B", "C", "BB", "Aa"}[i % 5], body = "body " + i;
            k.acknowledged(() -> p.send(message(topic, tag, body)));
            tagOf.put(body, tag);
        }
        k.consumed(ab, tagOf.keySet().stream().filter(b -> tagOf.get(b).matches("A|B")).collect(Collectors.toSet()));
        ab.messages().forEach(m -> check(m.getTags().matches("A|B"), "tag %s was delivered", m.getTags()));
        Seen collide = new Seen(); // "Aa" and "BB" have one hash: the client tells them apart
        k.push(k.unique("collide"), topic, "Aa", collide);
        k.consumed(collide, tagOf.keySet().stream().filter(b -> tagOf.get(b).equals("Aa")).collect(Collectors.toSet()));
    }

    private static void sql92(Kit k) throws Exception {
        String topic = k.topic("t", 4);
        DefaultMQProducer p = k.producer();
        Seen seen = new Seen();
        DefaultMQPushConsumer c = k.push(k.unique("cg"));
        c.subscribe(topic, MessageSelector.bySql("a BETWEEN 3 AND 5 AND region IN ('north', 'east') OR TAGS = 'always' AND b IS NULL"));
        k.collect(c, seen);
        Set<String> wanted = ConcurrentHashMap.newKeySet();
        for (int i = 0; k.more(i, 80); i++) {
            String region = new String[] {"north", "south", "east"}[i % 3], body = "body " + i, tag = i % 7 == 0 ? "always" : "T";
            int a = i % 8;
            boolean b = i % 2 == 0;
            Message m = message(topic, tag, body);
            m.putUserProperty("a", "" + a);
            m.putUserProperty("region", region);
            if (b) {
                m.putUserProperty("b", "x");
            }
            k.acknowledged(() -> p.send(m));
            if (a >= 3 && a <= 5 && !region.equals("south") || tag.equals("always") && !b) {
                wanted.add(body);
            }
        }
        k.consumed(seen, wanted);
        check(wanted.containsAll(seen.bodies()) || k.moves(), "not asked for: %s", seen.bodies());
    }

    /**
     * First offset, last offset, and a point in time: all begin at 0, which is RocketMQ's rule for a new group as long as
     * nothing of the queue was deleted and its beginning is in memory.
     */
    private static void where(Kit k) throws Exception {
        String topic = k.topic("t", 2);
        DefaultMQProducer p = k.producer();
        List<String> all = new ArrayList<>();
        for (int i = 0; i < 20; i++) {
            send(k, p, topic, all);
        }
        Thread.sleep(1100); // consumers tell points in time to a second
        String now = UtilAll.timeMillisToHumanString3(new Date().getTime());
        k.letMove();
        for (int i = 0; i < 20; i++) {
            send(k, p, topic, all);
        }
        Seen first = new Seen(), time = new Seen(), last = new Seen();
        k.push(k.unique("first"), topic, "*", first);
        DefaultMQPushConsumer c = k.push(k.unique("time"));
        c.setConsumeFromWhere(ConsumeFromWhere.CONSUME_FROM_TIMESTAMP);
        c.setConsumeTimestamp(now);
        c.subscribe(topic, "*");
        k.collect(c, time);
        DefaultMQPushConsumer l = k.push(k.unique("last"));
        l.setConsumeFromWhere(ConsumeFromWhere.CONSUME_FROM_LAST_OFFSET);
        l.subscribe(topic, "*");
        k.collect(l, last);
        k.consumed(first, all);
        k.consumed(time, all);
        k.consumed(last, all);
    }

    private static void suspend(Kit k) throws Exception {
        String topic = k.topic("t", 2);
        DefaultMQProducer p = k.producer();
        Seen seen = new Seen();
        List<String> sent = new ArrayList<>();
        DefaultMQPushConsumer c = k.push(k.unique("cg"), topic, "*", seen);
        for (int i = 0; i < 20; i++) {
            send(k, p, topic, sent);
        }
        k.consumed(seen, sent);
        c.suspend();
        k.letMove();
        Thread.sleep(1500); // pulls that are on their way still bring something
        send(k, p, topic, sent);
        int before = seen.size();
        for (int i = 0; i < 20; i++) {
            send(k, p, topic, sent);
        }
        check(seen.size() <= before + 2, "consumed while suspended: %d", seen.size() - before);
        c.resume();
        k.consumed(seen, sent);
        List<MessageQueue> queues = new ArrayList<>(c.fetchSubscribeMessageQueues(topic));
        check(queues.size() == 2, "queues: %s", queues);
    }
}
