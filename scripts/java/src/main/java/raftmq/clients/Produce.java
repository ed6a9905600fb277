package raftmq.clients;

import static raftmq.clients.Kit.check;
import static raftmq.clients.Kit.message;

import java.util.ArrayList;
import java.util.Arrays;
import java.util.HashMap;
import java.util.List;
import java.util.Map;
import java.util.Random;
import java.util.Set;
import java.util.concurrent.ConcurrentHashMap;
import java.util.concurrent.Semaphore;
import java.util.concurrent.TimeUnit;
import java.util.concurrent.atomic.AtomicReference;
import org.apache.rocketmq.client.consumer.DefaultMQPushConsumer;
import org.apache.rocketmq.client.consumer.listener.ConsumeConcurrentlyStatus;
import org.apache.rocketmq.client.consumer.listener.MessageListenerConcurrently;
import org.apache.rocketmq.client.exception.MQBrokerException;
import org.apache.rocketmq.client.producer.DefaultMQProducer;
import org.apache.rocketmq.client.producer.SendCallback;
import org.apache.rocketmq.client.producer.SendResult;
import org.apache.rocketmq.client.producer.SendStatus;
import org.apache.rocketmq.client.producer.selector.SelectMessageQueueByHash;
import org.apache.rocketmq.common.message.Message;
import org.apache.rocketmq.common.message.MessageExt;

/** Every way to send, seen by a push consumer. */
final class Produce {
    private Produce() {}

    static void register(Map<String, Main.Test> tests) {
        tests.put("send-sync", Produce::sync);
        tests.put("send-async", Produce::async);
        tests.put("send-oneway", Produce::oneway);
        tests.put("send-batch", Produce::batch);
        tests.put("send-selector", Produce::selector);
        tests.put("send-big", Produce::big);
        tests.put("send-namespace", Produce::namespace);
        tests.put("send-refused", Produce::refused);
    }

    /** To a topic that the first send creates. */
    private static void sync(Kit k) throws Exception {
        String topic = k.unique("auto");
        DefaultMQProducer p = k.producer();
        List<String> sent = new ArrayList<>();
        Seen seen = new Seen();
        k.acknowledged(() -> p.send(message(topic, "T", "first")));
        sent.add("first");
        k.push(k.unique("cg"), topic, "*", seen);
        for (int i = 0; k.more(i, 100); i++) {
            String body = "body " + i;
            k.acknowledged(() -> p.send(message(topic, "T", body)));
            sent.add(body);
        }
        k.consumed(seen, sent);
    }

    private static void async(Kit k) throws Exception {
        String topic = k.topic("t", 4);
        DefaultMQProducer p = k.producer();
        Seen seen = new Seen();
        k.push(k.unique("cg"), topic, "*", seen);
        Set<String> sent = ConcurrentHashMap.newKeySet();
        AtomicReference<Throwable> failure = new AtomicReference<>();
        Semaphore inFlight = new Semaphore(64);
        for (int i = 0; k.more(i, 300); i++) {
            String body = "body " + i;
            check(inFlight.tryAcquire(Kit.LONG, TimeUnit.SECONDS), "64 sends have no outcome");
            p.send(message(topic, "T", body), new SendCallback() {
                @Override
                public void onSuccess(SendResult r) {
                    if (r.getSendStatus() == SendStatus.SEND_OK) {
                        sent.add(body);
                    }
                    inFlight.release();
                }

                @Override
                public void onException(Throwable e) {
                    failure.set(e);
                    inFlight.release();
                }
            });
        }
        check(inFlight.tryAcquire(64, Kit.LONG, TimeUnit.SECONDS), "sends have no outcome");
        if (!k.moves() && failure.get() != null) {
            throw new AssertionError(failure.get());
        }
        // The client finds the leader again by itself.
        k.acknowledged(() -> p.send(message(topic, "T", "last")));
        sent.add("last");
        k.consumed(seen, sent);
    }

    /** Nothing is promised while leadership moves; what is sent afterwards arrives. */
    private static void oneway(Kit k) throws Exception {
        String topic = k.topic("t", 4);
        DefaultMQProducer p = k.producer();
        Seen seen = new Seen();
        k.push(k.unique("cg"), topic, "*", seen);
        for (int i = 0; k.more(i, 50); i++) {
            Message m = message(topic, "T", "body " + i);
            k.until(() -> {
                p.sendOneway(m);
                return null;
            });
        }
        if (!k.moves()) {
            List<String> all = new ArrayList<>();
            for (int i = 0; i < 50; i++) {
                all.add("body " + i);
            }
            k.consumed(seen, all);
            return;
        }
        Kit.await("a one-way message sent after the moves", Kit.LONG, () -> {
            p.sendOneway(message(topic, "T", "after"));
            return seen.bodies().contains("after");
        });
    }

    private static void batch(Kit k) throws Exception {
        String topic = k.topic("t", 4);
        DefaultMQProducer p = k.producer();
        Seen seen = new Seen();
        k.push(k.unique("cg"), topic, "*", seen);
        List<String> sent = new ArrayList<>();
        for (int i = 0; k.more(i, 20); i++) {
            List<Message> messages = new ArrayList<>();
            for (int j = 0; j < 10; j++) {
                messages.add(message(topic, "T" + j, "body " + i + "." + j));
            }
            SendResult r = k.acknowledged(() -> p.send(messages));
            check(r.getMsgId().split(",").length == 10, "ids of a batch of 10: %s", r.getMsgId());
            messages.forEach(m -> sent.add(Kit.text(m.getBody())));
        }
        k.consumed(seen, sent);
    }

    /** Messages of a key stay in a queue, in order. */
    private static void selector(Kit k) throws Exception {
        String topic = k.topic("t", 4);
        DefaultMQProducer p = k.producer();
        Seen seen = new Seen();
        k.push(k.unique("cg"), topic, "*", seen);
        List<String> sent = new ArrayList<>();
        for (int i = 0; k.more(i, 80); i++) {
            String body = i % 10 + " " + i, key = "key " + i % 10;
            k.acknowledged(() -> p.send(message(topic, "T", body), new SelectMessageQueueByHash(), key));
            sent.add(body);
        }
        k.consumed(seen, sent);
        Map<String, Integer> queue = new HashMap<>();
        Map<String, Map<Long, Integer>> order = new HashMap<>();
        for (MessageExt m : seen.messages()) {
            String[] parts = Kit.text(m.getBody()).split(" ");
            Integer before = queue.put(parts[0], m.getQueueId());
            check(before == null || before == m.getQueueId(), "key %s in queues %d and %d", parts[0], before, m.getQueueId());
            order.computeIfAbsent(parts[0], key -> new java.util.TreeMap<>()).put(m.getQueueOffset(), Integer.parseInt(parts[1]));
        }
        order.forEach((key, byOffset) -> {
            int last = -1;
            for (int n : byOffset.values()) {
                check(n >= last, "key %s: %d stored after %d", key, n, last); // equal: a send that was tried again
                last = n;
            }
        });
    }

    /** Bodies that do not compress, that do, and the largest one. */
    private static void big(Kit k) throws Exception {
        String topic = k.topic("t", 2);
        DefaultMQProducer p = k.producer();
        p.setSendMsgTimeout(15_000);
        Map<String, byte[]> got = new ConcurrentHashMap<>();
        Seen seen = new Seen();
        DefaultMQPushConsumer c = k.push(k.unique("cg"));
        c.subscribe(topic, "*");
        c.registerMessageListener((MessageListenerConcurrently) (messages, context) -> {
            messages.forEach(m -> got.put(m.getKeys(), m.getBody()));
            return ConsumeConcurrentlyStatus.CONSUME_SUCCESS;
        });
        c.start();
        Random random = new Random(7);
        Map<String, byte[]> sent = new HashMap<>();
        int[] sizes = {0x4000, 1 << 20, (4 << 20) - 0x2000}; // noise grows a little when the client compresses it
        for (int i = 0; i < sizes.length; i++) {
            byte[] noise = new byte[sizes[i]], same = new byte[sizes[i]];
            random.nextBytes(noise);
            Arrays.fill(same, (byte) ('a' + i));
            for (byte[] body : List.of(noise, same)) {
                String key = (body == noise ? "noise" : "same") + sizes[i];
                k.acknowledged(() -> p.send(new Message(topic, "T", key, body)));
                sent.put(key, body);
            }
            if (i == 0) {
                k.letMove();
            }
        }
        Kit.await("big messages consumed", Kit.LONG, () -> got.keySet().containsAll(sent.keySet()));
        sent.forEach((key, body) -> check(Arrays.equals(body, got.get(key)), "%s: another body", key));
    }

    @SuppressWarnings("deprecation") // setNamespace, in 5.x
    private static void namespace(Kit k) throws Exception {
        DefaultMQProducer p = new DefaultMQProducer(k.unique("pg"));
        p.setNamespace("MQ_INST_1");
        k.started(p);
        String topic = k.unique("t");
        Seen seen = new Seen(), other = new Seen();
        k.acknowledged(() -> p.send(message(topic, "T", "first")));
        DefaultMQPushConsumer c = k.push(k.unique("cg"));
        c.setNamespace("MQ_INST_1");
        c.subscribe(topic, "*");
        k.collect(c, seen);
        k.push(k.unique("other"), topic, "*", other); // the same names outside of the namespace
        List<String> sent = new ArrayList<>(List.of("first"));
        for (int i = 0; k.more(i, 20); i++) {
            String body = "body " + i;
            k.acknowledged(() -> p.send(message(topic, "T", body)));
            sent.add(body);
        }
        k.consumed(seen, sent);
        check(seen.messages().get(0).getTopic().equals(topic), "a consumer in a namespace sees topic %s", seen.messages().get(0).getTopic());
        check(other.size() == 0, "a consumer outside of the namespace got %s", other.bodies());
    }

    /** What the server refuses, it refuses with RocketMQ's code. */
    private static void refused(Kit k) throws Exception {
        DefaultMQProducer p = k.producer();
        p.setMaxMessageSize(1 << 30); // the client's own check
        p.setCompressMsgBodyOverHowmuch(1 << 30);
        p.setSendMsgTimeout(15_000);
        String topic = k.topic("t", 1);
        k.letMove();
        k.acknowledged(() -> p.send(message(topic, "T", "goes")));
        byte[] body = new byte[(4 << 20) + 1];
        try {
            p.send(new Message(topic, body));
            throw new AssertionError("a body of 4 MiB + 1 was taken");
        } catch (MQBrokerException e) {
            check(e.getResponseCode() == 13, "a body of 4 MiB + 1: %s", e);
        }
        Message m = message(topic, "T", "properties");
        m.putUserProperty("long", "x".repeat(Short.MAX_VALUE + 1));
        try {
            p.send(m);
            throw new AssertionError("properties of 32 KiB were taken");
        } catch (MQBrokerException e) {
            check(e.getResponseCode() == 13, "properties of 32 KiB: %s", e);
        }
    }
}
