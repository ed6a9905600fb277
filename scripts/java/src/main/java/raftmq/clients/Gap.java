package raftmq.clients;

import java.util.ArrayList;
import java.util.HashMap;
import java.util.LinkedHashMap;
import java.util.List;
import java.util.Locale;
import java.util.Map;
import java.util.concurrent.ConcurrentHashMap;
import java.util.concurrent.ExecutorService;
import java.util.concurrent.Executors;
import org.apache.rocketmq.client.consumer.DefaultLitePullConsumer;
import org.apache.rocketmq.client.consumer.DefaultMQPushConsumer;
import org.apache.rocketmq.client.consumer.listener.ConsumeConcurrentlyStatus;
import org.apache.rocketmq.client.consumer.listener.MessageListenerConcurrently;
import org.apache.rocketmq.client.producer.DefaultMQProducer;
import org.apache.rocketmq.client.producer.SendCallback;
import org.apache.rocketmq.client.producer.SendResult;
import org.apache.rocketmq.client.producer.SendStatus;
import org.apache.rocketmq.common.message.Message;
import org.apache.rocketmq.common.message.MessageExt;

/**
 * What clients feel when a command takes the leader away. Stock settings: sends time out after 3 s and are tried three times. Sends are
 * begun at a steady pace, each beside those that have not ended, as in an application of many threads.
 *
 * <pre>Gap --name-servers A;B;C --move COMMAND [--limit SECONDS [--kinds KIND,...]] [--failures N]</pre>
 *
 * The last words that COMMAND prints are when it took leadership away, in milliseconds since 1970, and how long it took the cluster
 * from there to have a leader that takes writes again, in seconds. Status 1 if a client (of sync, async, push, pull, or those named) has
 * its first success of a call that was begun later than that by more than the limit, or if more sends than N fail.
 */
public final class Gap {
    private Gap() {}

    private static final int PACE_MILLIS = 10;
    private static final int QUEUES = 4;
    private static volatile boolean done;

    private final Map<String, Calls> calls = new LinkedHashMap<>();
    /** By kind of consumer and queue: when the newest message that it got was sent. */
    private final Map<String, Long> consumed = new ConcurrentHashMap<>();

    public static void main(String[] args) {
        try {
            System.exit(new Gap().run(args) ? 0 : 1);
        } catch (Exception | AssertionError e) {
            e.printStackTrace();
            System.exit(1); // clients leave threads behind that are no daemons
        }
    }

    private boolean run(String[] args) throws Exception {
        Map<String, String> options = new HashMap<>();
        for (int i = 0; i + 1 < args.length; i += 2) {
            options.put(args[i], args[i + 1]);
        }
        Kit k = new Kit("gap", options.get("--name-servers"), new Phase(true, 1));
        String topic = k.topic("t", QUEUES);
        for (String name : List.of("sync", "async", "push", "pull")) {
            calls.put(name, new Calls());
        }
        List<Thread> threads = new ArrayList<>();
        consumers(k, topic, threads);
        senders(k, topic, threads);
        settle(60);
        Thread.sleep(2000); // of calm, so that the start is not measured
        settle(60);
        Process p = new ProcessBuilder("bash", "-c", options.get("--move")).redirectError(ProcessBuilder.Redirect.INHERIT).start();
        String printed = Kit.text(p.getInputStream().readAllBytes()).strip();
        if (p.waitFor() != 0) {
            throw new IllegalStateException("the leader was not moved");
        }
        String[] words = printed.split("\\s+");
        long change = Long.parseLong(words[words.length - 2]);
        double election = Double.parseDouble(words[words.length - 1]);
        // A client that asks for routes every 30 s is hit up to that time later.
        settle(90);
        done = true;
        for (Thread t : threads) {
            t.join(10_000);
        }
        double limit = Double.parseDouble(options.getOrDefault("--limit", "Infinity"));
        List<String> kinds = List.of(options.getOrDefault("--kinds", "sync,async,push,pull").split(","));
        System.out.printf(Locale.ROOT, "  a leader after %.2f s%n", election);
        boolean good = true;
        int failed = 0;
        for (Map.Entry<String, Calls> c : calls.entrySet()) {
            Calls.Gap g = c.getValue().gap(change);
            failed += g.failed;
            String verdict = "";
            if (kinds.contains(c.getKey()) && g.first > election + limit) {
                good = false;
                verdict = " TOO LONG";
            }
            System.out.printf("  %-5s %s%s%n", c.getKey(), g, verdict);
        }
        if (options.containsKey("--failures") && failed > Integer.parseInt(options.get("--failures"))) {
            System.out.println("  " + failed + " FAILED");
            good = false;
        }
        return good;
    }

    /** Waits until sends that are begun now succeed and each queue has its consumers. */
    private void settle(int seconds) throws Exception {
        long now = Calls.now();
        Kit.await("everybody goes on", seconds, () -> calls.get("sync").succeeded(now) && calls.get("async").succeeded(now)
                && consumed.values().stream().filter(born -> born > now).count() == 2 * QUEUES);
    }

    private static void thread(List<Thread> threads, Runnable r) {
        Thread t = new Thread(r);
        t.setDaemon(true);
        threads.add(t);
        t.start();
    }

    private void senders(Kit k, String topic, List<Thread> threads) throws Exception {
        DefaultMQProducer sync = k.producer(), async = k.producer();
        ExecutorService each = Executors.newCachedThreadPool(r -> {
            Thread t = new Thread(r);
            t.setDaemon(true);
            return t;
        });
        ticking(threads, () -> each.execute(() -> {
            long begin = Calls.now();
            try {
                SendResult r = sync.send(new Message(topic, Kit.bytes("s")));
                calls.get("sync").add(begin, r.getSendStatus() == SendStatus.SEND_OK ? null : new IllegalStateException(r.toString()));
            } catch (Exception e) {
                calls.get("sync").add(begin, e);
            }
        }));
        ticking(threads, () -> {
            long begin = Calls.now();
            try {
                async.send(new Message(topic, Kit.bytes("a")), new SendCallback() {
                    @Override
                    public void onSuccess(SendResult r) {
                        calls.get("async").ok(begin);
                    }

                    @Override
                    public void onException(Throwable e) {
                        calls.get("async").add(begin, e);
                    }
                });
            } catch (Exception e) {
                calls.get("async").add(begin, e);
            }
        });
    }

    private static void ticking(List<Thread> threads, Runnable r) {
        thread(threads, () -> {
            while (!done) {
                r.run();
                try {
                    Thread.sleep(PACE_MILLIS);
                } catch (InterruptedException e) {
                    return;
                }
            }
        });
    }

    /** A message that a consumer got is a call from its birth on. */
    private void got(String kind, List<MessageExt> messages) {
        for (MessageExt m : messages) {
            calls.get(kind).ok(m.getBornTimestamp());
            consumed.merge(kind + m.getQueueId(), m.getBornTimestamp(), Math::max);
        }
    }

    private void consumers(Kit k, String topic, List<Thread> threads) throws Exception {
        DefaultMQPushConsumer push = k.push(k.unique("push"));
        push.subscribe(topic, "*");
        push.registerMessageListener((MessageListenerConcurrently) (messages, context) -> {
            got("push", messages);
            return ConsumeConcurrentlyStatus.CONSUME_SUCCESS;
        });
        push.start();
        DefaultLitePullConsumer pull = k.lite(k.unique("pull"));
        pull.subscribe(topic, "*");
        pull.start();
        thread(threads, () -> {
            while (!done) {
                got("pull", pull.poll(100));
            }
        });
    }
}
