package raftmq.clients;

import java.util.ArrayList;
import java.util.HashMap;
import java.util.List;
import java.util.Locale;
import java.util.Map;
import java.util.TreeMap;
import java.util.concurrent.Semaphore;
import org.apache.rocketmq.client.consumer.DefaultLitePullConsumer;
import org.apache.rocketmq.client.consumer.DefaultMQPushConsumer;
import org.apache.rocketmq.client.consumer.listener.ConsumeConcurrentlyStatus;
import org.apache.rocketmq.client.consumer.listener.MessageListenerConcurrently;
import org.apache.rocketmq.client.producer.DefaultMQProducer;
import org.apache.rocketmq.client.producer.SendCallback;
import org.apache.rocketmq.client.producer.SendResult;
import org.apache.rocketmq.client.producer.SendStatus;
import org.apache.rocketmq.common.message.Message;

/**
 * How long clients are without an acknowledged send, or without a message, when a command takes the leader away. Stock
 * settings: sends time out after 3 s and are tried three times; the application tries again at once.
 *
 * <pre>Gap --name-servers A;B;C --move COMMAND [--limit SECONDS]</pre>
 *
 * The last word that COMMAND prints is how long it took the cluster to have a leader that takes writes again, in seconds.
 * Status 1 if a client's gap is longer than that by more than the limit.
 */
public final class Gap {
    private Gap() {}

    /** Times of successes, in milliseconds. */
    private static final class Beat {
        private final List<Long> times = new ArrayList<>();
        private long failures;

        synchronized void ok() {
            times.add(System.nanoTime() / 1_000_000);
        }

        synchronized void failed() {
            failures++;
        }

        synchronized long failures() {
            return failures;
        }

        synchronized long last() {
            return times.isEmpty() ? 0 : times.get(times.size() - 1);
        }

        /** The longest time without, that ends after the given one. */
        synchronized long longest(long since) {
            long longest = 0;
            for (int i = 1; i < times.size(); i++) {
                if (times.get(i) >= since) {
                    longest = Math.max(longest, times.get(i) - times.get(i - 1));
                }
            }
            return longest;
        }
    }

    private static volatile boolean done;

    public static void main(String[] args) {
        try {
            System.exit(run(args) ? 0 : 1);
        } catch (Exception | AssertionError e) {
            e.printStackTrace();
            System.exit(1); // clients leave threads behind that are no daemons
        }
    }

    private static boolean run(String[] args) throws Exception {
        Map<String, String> options = new HashMap<>();
        for (int i = 0; i + 1 < args.length; i += 2) {
            options.put(args[i], args[i + 1]);
        }
        Kit k = new Kit("gap", options.get("--name-servers"), new Phase(true, 1));
        String topic = k.topic("t", 4);
        Map<String, Beat> beats = new TreeMap<>();
        for (String name : List.of("sync", "async", "push", "pull")) {
            beats.put(name, new Beat());
        }
        List<Thread> threads = new ArrayList<>();
        consumers(k, topic, beats, threads);
        senders(k, topic, beats, threads);
        Kit.await("everybody's first success", 60, () -> beats.values().stream().allMatch(b -> b.last() != 0));
        Thread.sleep(2000);
        long begin = System.nanoTime() / 1_000_000;
        Process p = new ProcessBuilder("bash", "-c", options.get("--move")).redirectError(ProcessBuilder.Redirect.INHERIT).start();
        String printed = Kit.text(p.getInputStream().readAllBytes()).strip();
        if (p.waitFor() != 0) {
            throw new IllegalStateException("the leader was not moved");
        }
        double election = Double.parseDouble(printed.substring(printed.lastIndexOf(' ') + 1));
        // Until all have gone on for a while: a client that asks for routes every 30 s is hit up to that time later.
        Thread.sleep(1000);
        long quiet = System.nanoTime() / 1_000_000;
        Kit.await("everybody goes on", 90, () -> beats.values().stream().allMatch(b -> b.last() > quiet));
        Thread.sleep(2000);
        done = true;
        for (Thread t : threads) {
            t.join(10_000);
        }
        StringBuilder line = new StringBuilder(String.format(Locale.ROOT, "  leader %5.2f s", election));
        boolean good = true;
        for (Map.Entry<String, Beat> b : beats.entrySet()) {
            double gap = b.getValue().longest(begin) / 1000.0;
            line.append(String.format(Locale.ROOT, "   %s %5.2f s", b.getKey(), gap));
            if (b.getValue().failures() > 0) {
                line.append(" (").append(b.getValue().failures()).append(" failed)");
            }
            if (options.containsKey("--limit") && gap > election + Double.parseDouble(options.get("--limit"))) {
                good = false;
                line.append(" TOO LONG");
            }
        }
        System.out.println(line);
        return good;
    }

    private static void thread(List<Thread> threads, Runnable r) {
        Thread t = new Thread(r);
        t.setDaemon(true);
        threads.add(t);
        t.start();
    }

    private static void pause() {
        try {
            Thread.sleep(5);
        } catch (InterruptedException e) {
            Thread.currentThread().interrupt();
        }
    }

    private static void senders(Kit k, String topic, Map<String, Beat> beats, List<Thread> threads) throws Exception {
        DefaultMQProducer sync = k.producer(), async = k.producer();
        Beat s = beats.get("sync"), a = beats.get("async");
        thread(threads, () -> {
            while (!done) {
                try {
                    if (sync.send(new Message(topic, Kit.bytes("s"))).getSendStatus() == SendStatus.SEND_OK) {
                        s.ok();
                    }
                } catch (Exception e) {
                    s.failed();
                }
                pause();
            }
        });
        Semaphore inFlight = new Semaphore(1000); // more than come in 3 s: those that hang do not hold the next ones up
        thread(threads, () -> {
            while (!done) {
                try {
                    inFlight.acquire();
                    async.send(new Message(topic, Kit.bytes("a")), new SendCallback() {
                        @Override
                        public void onSuccess(SendResult r) {
                            a.ok();
                            inFlight.release();
                        }

                        @Override
                        public void onException(Throwable e) {
                            a.failed();
                            inFlight.release();
                        }
                    });
                } catch (Exception e) {
                    a.failed();
                    inFlight.release();
                }
                pause();
            }
        });
    }

    private static void consumers(Kit k, String topic, Map<String, Beat> beats, List<Thread> threads) throws Exception {
        DefaultMQPushConsumer push = k.push(k.unique("push"));
        push.subscribe(topic, "*");
        push.registerMessageListener((MessageListenerConcurrently) (messages, context) -> {
            beats.get("push").ok();
            return ConsumeConcurrentlyStatus.CONSUME_SUCCESS;
        });
        push.start();
        DefaultLitePullConsumer pull = k.lite(k.unique("pull"));
        pull.subscribe(topic, "*");
        pull.start();
        thread(threads, () -> {
            while (!done) {
                if (!pull.poll(100).isEmpty()) {
                    beats.get("pull").ok();
                }
            }
        });
    }
}
