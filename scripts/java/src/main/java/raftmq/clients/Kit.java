package raftmq.clients;

import java.nio.charset.StandardCharsets;
import java.util.ArrayDeque;
import java.util.ArrayList;
import java.util.Collection;
import java.util.Deque;
import java.util.List;
import java.util.concurrent.Callable;
import java.util.concurrent.atomic.AtomicBoolean;
import java.util.concurrent.atomic.AtomicInteger;
import org.apache.rocketmq.client.ClientConfig;
import org.apache.rocketmq.client.consumer.DefaultLitePullConsumer;
import org.apache.rocketmq.client.consumer.DefaultMQPushConsumer;
import org.apache.rocketmq.client.consumer.listener.ConsumeConcurrentlyStatus;
import org.apache.rocketmq.client.consumer.listener.MessageListenerConcurrently;
import org.apache.rocketmq.client.exception.MQBrokerException;
import org.apache.rocketmq.client.exception.MQClientException;
import org.apache.rocketmq.client.exception.RequestTimeoutException;
import org.apache.rocketmq.client.producer.DefaultMQProducer;
import org.apache.rocketmq.client.producer.SendResult;
import org.apache.rocketmq.client.producer.SendStatus;
import org.apache.rocketmq.common.MQVersion;
import org.apache.rocketmq.common.TopicConfig;
import org.apache.rocketmq.common.consumer.ConsumeFromWhere;
import org.apache.rocketmq.common.message.Message;
import org.apache.rocketmq.remoting.exception.RemotingException;
import org.apache.rocketmq.tools.admin.DefaultMQAdminExt;

/** A test's clients, names and waits. Everything that it starts ends when the run does. */
final class Kit {
    /** Enough for a client that asks for routes every 30 s, twice, on a machine that is busy. */
    static final int LONG = 100;

    /** Refused or lost sends that were tried again. */
    final AtomicInteger refused = new AtomicInteger();

    final String name;
    private final String nameServers;
    private final Phase phase;
    private final String run;
    private final AtomicInteger clients = new AtomicInteger();
    private final Deque<Runnable> ends = new ArrayDeque<>();
    private final AtomicBoolean isReady = new AtomicBoolean();

    Kit(String name, String nameServers, Phase phase) {
        this.name = name;
        this.nameServers = nameServers;
        this.phase = phase;
        this.run = (phase.moves ? "m" : "c") + Long.toString(System.currentTimeMillis(), 36);
    }

    boolean moves() {
        return phase.moves;
    }

    /** What the test called so this time, in this run: for topics and groups. */
    String unique(String what) {
        return name.replace('-', '_') + "_" + what + "_" + run;
    }

    /** The test's clients work: leadership may move from now on. */
    void ready() {
        if (isReady.compareAndSet(false, true)) {
            phase.ready();
        }
    }

    /**
     * Tells whether a loop that has gone round done times goes on: count times, and as long as leadership moves. With a
     * pause when it moves, as otherwise tests would be about load.
     */
    boolean more(int done, int count) throws InterruptedException {
        if (done < count) {
            return true;
        }
        ready();
        if (phase.isOver()) {
            return false;
        }
        Thread.sleep(20);
        return true;
    }

    /** Lets the moves happen, for tests that have nothing to do meanwhile. */
    void letMove() throws Exception {
        ready();
        await("moves of the leader", 2 * LONG, phase::isOver);
    }

    // ---- clients ----

    <C extends ClientConfig> C config(C c) {
        c.setNamesrvAddr(nameServers);
        c.setInstanceName(unique("i" + clients.incrementAndGet()));
        return c;
    }

    DefaultMQProducer producer() throws MQClientException {
        return started(new DefaultMQProducer(unique("pg" + clients.incrementAndGet())));
    }

    <P extends DefaultMQProducer> P started(P p) throws MQClientException {
        config(p);
        p.start();
        end(p::shutdown);
        return p;
    }

    /** A push consumer from the first offset that is not started yet. */
    DefaultMQPushConsumer push(String group) {
        DefaultMQPushConsumer c = config(new DefaultMQPushConsumer(group));
        c.setConsumeFromWhere(ConsumeFromWhere.CONSUME_FROM_FIRST_OFFSET);
        c.setConsumeThreadMin(4);
        c.setConsumeThreadMax(4);
        end(c::shutdown);
        return c;
    }

    /** A push consumer that tells seen what it gets. Started. */
    DefaultMQPushConsumer push(String group, String topic, String tags, Seen seen) throws MQClientException {
        DefaultMQPushConsumer c = push(group);
        c.subscribe(topic, tags);
        return collect(c, seen);
    }

    DefaultMQPushConsumer collect(DefaultMQPushConsumer c, Seen seen) throws MQClientException {
        c.registerMessageListener((MessageListenerConcurrently) (messages, context) -> {
            messages.forEach(seen::add);
            return ConsumeConcurrentlyStatus.CONSUME_SUCCESS;
        });
        c.start();
        return c;
    }

    DefaultLitePullConsumer lite(String group) {
        DefaultLitePullConsumer c = config(new DefaultLitePullConsumer(group));
        c.setConsumeFromWhere(ConsumeFromWhere.CONSUME_FROM_FIRST_OFFSET);
        end(c::shutdown);
        return c;
    }

    DefaultMQAdminExt admin() throws MQClientException {
        DefaultMQAdminExt a = config(new DefaultMQAdminExt());
        a.start();
        end(a::shutdown);
        return a;
    }

    /** Creates the topic on whoever leads now. */
    String topic(String what, int queues) throws Exception {
        String topic = unique(what);
        TopicConfig t = new TopicConfig(topic);
        t.setReadQueueNums(queues);
        t.setWriteQueueNums(queues);
        t.setPerm(6);
        DefaultMQAdminExt a = admin();
        a.createAndUpdateTopicConfig(leader(a), t);
        return topic;
    }

    /** The address that routes name as broker 0. */
    String leader(DefaultMQAdminExt a) throws Exception {
        return a.examineBrokerClusterInfo().getBrokerAddrTable().values().iterator().next().getBrokerAddrs().get(0L);
    }

    void end(Runnable r) {
        synchronized (ends) {
            ends.push(r);
        }
    }

    void close() {
        synchronized (ends) {
            while (!ends.isEmpty()) {
                ends.pop().run();
            }
        }
    }

    // ---- sends ----

    interface Send {
        SendResult send() throws Exception;
    }

    /** Sends until it is acknowledged; without moves, once. */
    SendResult acknowledged(Send send) throws Exception {
        return until(() -> {
            SendResult r = send.send();
            if (r.getSendStatus() != SendStatus.SEND_OK) {
                throw new IllegalStateException("answered " + r);
            }
            return r;
        });
    }

    /** Does what may be refused while leadership moves until it is not; without moves, once. */
    <T> T until(Callable<T> what) throws Exception {
        long deadline = System.nanoTime() + LONG * 1_000_000_000L;
        while (true) {
            try {
                return what.call();
            } catch (MQClientException | MQBrokerException | RemotingException | RequestTimeoutException e) {
                refused.incrementAndGet();
                if (!phase.moves || System.nanoTime() > deadline) {
                    throw e;
                }
                Thread.sleep(100);
            }
        }
    }

    /** Whether the clients are of 5.x. */
    static boolean five() {
        return MQVersion.CURRENT_VERSION >= MQVersion.Version.V5_0_0.ordinal();
    }

    static byte[] bytes(String s) {
        return s.getBytes(StandardCharsets.UTF_8);
    }

    static String text(byte[] b) {
        return new String(b, StandardCharsets.UTF_8);
    }

    static Message message(String topic, String tag, String body) {
        return new Message(topic, tag, body, bytes(body));
    }

    // ---- waits and checks ----

    static void await(String what, int seconds, Callable<Boolean> condition) throws Exception {
        long deadline = System.nanoTime() + seconds * 1_000_000_000L;
        while (!condition.call()) {
            if (System.nanoTime() > deadline) {
                throw new AssertionError("not within " + seconds + " s: " + what);
            }
            Thread.sleep(50);
        }
    }

    static void check(boolean holds, String what, Object... args) {
        if (!holds) {
            throw new AssertionError(String.format(what, args));
        }
    }

    /** Waits until all the bodies were seen, and checks that they were seen once each, or at least once if leadership moves. */
    void consumed(Seen seen, Collection<String> bodies) throws Exception {
        try {
            await("all consumed", LONG, () -> seen.bodies().containsAll(bodies));
        } catch (AssertionError e) {
            List<String> missing = new ArrayList<>(bodies);
            missing.removeAll(seen.bodies());
            throw new AssertionError(missing.size() + " of " + bodies.size() + " not consumed within " + LONG + " s: "
                    + missing.subList(0, Math.min(5, missing.size())));
        }
        check(bodies.containsAll(seen.bodies()) || phase.moves, "consumed what was never acknowledged: %s", seen.bodies());
        if (!phase.moves) {
            check(seen.twice().isEmpty(), "consumed more than once: %s", seen.twice());
        }
    }
}
