package raftmq.clients;

import static raftmq.clients.Kit.check;
import static raftmq.clients.Kit.message;

import java.util.ArrayList;
import java.util.Collection;
import java.util.List;
import java.util.Map;
import java.util.TreeMap;
import org.apache.rocketmq.client.consumer.DefaultLitePullConsumer;
import org.apache.rocketmq.client.consumer.DefaultMQPullConsumer;
import org.apache.rocketmq.client.consumer.PullResult;
import org.apache.rocketmq.client.consumer.PullStatus;
import org.apache.rocketmq.client.producer.DefaultMQProducer;
import org.apache.rocketmq.common.message.MessageExt;
import org.apache.rocketmq.common.message.MessageQueue;

/** Consumers that ask when they like. */
@SuppressWarnings("deprecation") // the pull consumer is, and is what applications of 4.x use
final class Pull {
    private Pull() {}

    static void register(Map<String, Main.Test> tests) {
        tests.put("pull", Pull::pull);
        tests.put("lite-subscribe", Pull::subscribe);
        tests.put("lite-assign", Pull::assign);
    }

    /** One queue, sent one after another with known bodies 0, 1, 2, … */
    private static int fill(Kit k, DefaultMQProducer p, String topic, int from, int count) throws Exception {
        int i = from;
        for (; k.more(i - from, count); i++) {
            String body = "" + i;
            k.acknowledged(() -> p.send(message(topic, "T", body)));
        }
        return i;
    }

    private static void pull(Kit k) throws Exception {
        String topic = k.topic("t", 1);
        DefaultMQProducer p = k.producer();
        DefaultMQPullConsumer c = k.config(new DefaultMQPullConsumer(k.unique("cg")));
        c.start();
        k.end(c::shutdown);
        MessageQueue q = k.until(() -> c.fetchSubscribeMessageQueues(topic)).iterator().next();
        check(k.until(() -> c.fetchConsumeOffset(q, true)) <= 0, "a new group has an offset");
        int sent = fill(k, p, topic, 0, 50);
        List<String> got = new ArrayList<>();
        long offset = 0;
        while (true) {
            long from = offset;
            PullResult r = k.until(() -> c.pull(q, "*", from, 10));
            offset = r.getNextBeginOffset();
            if (r.getPullStatus() != PullStatus.FOUND) {
                check(r.getPullStatus() == PullStatus.NO_NEW_MSG, "pull at %d: %s", from, r);
                break;
            }
            r.getMsgFoundList().forEach(m -> got.add(Kit.text(m.getBody())));
        }
        check(new java.util.HashSet<>(got).size() == sent && (k.moves() || got.size() == sent), "%d sent, got %s", sent, got);
        PullResult beyond = k.until(() -> c.pull(q, "*", 1_000_000, 10));
        check(beyond.getPullStatus() == PullStatus.OFFSET_ILLEGAL && beyond.getNextBeginOffset() == got.size(), "a pull far beyond: %s", beyond);
        check(k.until(() -> c.maxOffset(q)) == got.size(), "max offset %d", c.maxOffset(q));
        check(k.until(() -> c.minOffset(q)) == 0, "min offset %d", c.minOffset(q));
        check(k.until(() -> c.earliestMsgStoreTime(q)) > System.currentTimeMillis() - 600_000, "earliest store time");
        c.updateConsumeOffset(q, 17);
        c.getOffsetStore().persist(q);
        Kit.await("the stored offset", Kit.LONG, () -> {
            c.getOffsetStore().persist(q); // a one-way request in 4.9: told again after a move
            return k.until(() -> c.fetchConsumeOffset(q, true)) == 17;
        });
    }

    private static void subscribe(Kit k) throws Exception {
        String topic = k.topic("t", 4);
        DefaultMQProducer p = k.producer();
        String group = k.unique("cg");
        DefaultLitePullConsumer c = k.lite(group);
        c.subscribe(topic, "*");
        c.setAutoCommit(false);
        c.start();
        Seen seen = new Seen();
        List<String> sent = new ArrayList<>();
        for (int i = 0; k.more(i, 100); i++) {
            String body = "body " + i;
            k.acknowledged(() -> p.send(message(topic, "T", body)));
            sent.add(body);
            c.poll(1).forEach(seen::add);
        }
        Kit.await("all polled", Kit.LONG, () -> {
            c.poll(200).forEach(seen::add);
            return seen.bodies().containsAll(sent);
        });
        check(k.moves() || seen.twice().isEmpty(), "polled twice: %s", seen.twice());
        c.commitSync();
        Collection<MessageQueue> queues = k.until(() -> c.fetchMessageQueues(topic));
        check(queues.size() == 4, "queues: %s", queues);
        Kit.await("committed offsets", Kit.LONG, () -> {
            c.commitSync();
            long sum = 0;
            for (MessageQueue q : queues) {
                sum += Math.max(0, k.until(() -> c.committed(q)));
            }
            return sum >= sent.size();
        });
        // Another one of the group goes on behind them.
        c.shutdown();
        DefaultLitePullConsumer next = k.lite(group);
        next.subscribe(topic, "*");
        next.start();
        k.acknowledged(() -> p.send(message(topic, "T", "last")));
        Seen later = new Seen();
        Kit.await("the next one's first message", Kit.LONG, () -> {
            next.poll(200).forEach(later::add);
            return later.size() > 0;
        });
        check(later.bodies().equals(java.util.Set.of("last")), "behind the committed offsets: %s", later.bodies());
    }

    private static void assign(Kit k) throws Exception {
        String topic = k.topic("t", 1);
        DefaultMQProducer p = k.producer();
        TreeMap<Integer, Long> times = new TreeMap<>();
        for (int i = 0; i < 60; i++) {
            String body = "" + i;
            k.acknowledged(() -> p.send(message(topic, "T", body)));
            if (i % 20 == 19) {
                Thread.sleep(30);
                times.put(i + 1, System.currentTimeMillis());
                Thread.sleep(30);
            }
        }
        DefaultLitePullConsumer c = k.lite(k.unique("cg"));
        c.setAutoCommit(false);
        c.start();
        MessageQueue q = k.until(() -> c.fetchMessageQueues(topic)).iterator().next();
        c.assign(List.of(q));
        k.letMove();
        times.remove(60);
        for (Map.Entry<Integer, Long> t : times.entrySet()) {
            long at = k.until(() -> c.offsetForTimestamp(q, t.getValue()));
            check(k.moves() || at == t.getKey(), "offset at the time of %d: %d", t.getKey(), at);
            c.seek(q, at);
            MessageExt m = first(c, at);
            check(k.moves() || Kit.text(m.getBody()).equals("" + t.getKey()), "after a seek to %d: %s", at, Kit.text(m.getBody()));
        }
        k.until(() -> {
            c.seekToBegin(q);
            return null;
        });
        first(c, 0);
        c.seek(q, 40);
        first(c, 40);
        k.until(() -> {
            c.seekToEnd(q);
            return null;
        });
        String end = k.acknowledged(() -> p.send(message(topic, "T", "end"))).getMsgId();
        Kit.await("what is sent after a seek to the end", Kit.LONG, () -> c.poll(200).stream().anyMatch(m -> m.getMsgId().equals(end)));
        c.pause(List.of(q));
        List<String> paused = new ArrayList<>();
        k.acknowledged(() -> p.send(message(topic, "T", "paused 1")));
        c.poll(3000).forEach(m -> paused.add(Kit.text(m.getBody()))); // the pull that was on its way
        k.acknowledged(() -> p.send(message(topic, "T", "paused 2")));
        c.poll(1500).forEach(m -> paused.add(Kit.text(m.getBody())));
        check(!paused.contains("paused 2"), "polled while paused: %s", paused);
        c.resume(List.of(q));
        Kit.await("what is sent while paused", Kit.LONG, () -> {
            c.poll(200).forEach(m -> paused.add(Kit.text(m.getBody())));
            return paused.containsAll(List.of("paused 1", "paused 2"));
        });
    }

    /** Polls until the message at that offset comes: what was fetched before a seek may come first in 4.9. */
    private static MessageExt first(DefaultLitePullConsumer c, long offset) throws Exception {
        MessageExt[] found = new MessageExt[1];
        Kit.await("the message at " + offset, Kit.LONG, () -> {
            c.poll(200).stream().filter(m -> m.getQueueOffset() == offset).forEach(m -> found[0] = m);
            return found[0] != null;
        });
        return found[0];
    }
}
