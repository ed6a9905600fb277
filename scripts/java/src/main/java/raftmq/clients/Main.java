package raftmq.clients;

import java.io.PrintWriter;
import java.io.StringWriter;
import java.util.ArrayList;
import java.util.LinkedHashMap;
import java.util.List;
import java.util.Locale;
import java.util.Map;
import java.util.concurrent.CountDownLatch;
import java.util.concurrent.ExecutorService;
import java.util.concurrent.Executors;
import java.util.concurrent.Future;
import java.util.concurrent.TimeUnit;
import java.util.concurrent.TimeoutException;

/**
 * Runs the tests against a cluster that is up, all at once, since most of them wait most of the time. Prints a line for
 * each: name, seconds, verdict. Exits with 1 if one failed.
 *
 * <pre>Main --name-servers A;B;C [--move COMMAND] [--only NAME,NAME] [--limit SECONDS]</pre>
 *
 * With --move the tests go on until that command, which takes leadership away from a node (again and again), has ended.
 * It is started when every test has got its clients to work. Refused sends are then tried again; without it they are failures.
 */
public final class Main {
    private Main() {}

    interface Test {
        void run(Kit kit) throws Exception;
    }

    public static void main(String[] args) throws Exception {
        String nameServers = null, move = null, only = null;
        int limit = 240;
        for (int i = 0; i + 1 < args.length; i += 2) {
            switch (args[i]) {
                case "--name-servers": nameServers = args[i + 1]; break;
                case "--move": move = args[i + 1]; break;
                case "--only": only = args[i + 1]; break;
                case "--limit": limit = Integer.parseInt(args[i + 1]); break;
                default: throw new IllegalArgumentException("unknown argument " + args[i]);
            }
        }
        if (nameServers == null) {
            throw new IllegalArgumentException("--name-servers is missing");
        }
        Map<String, Test> tests = new LinkedHashMap<>();
        Produce.register(tests);
        Push.register(tests);
        Pull.register(tests);
        Later.register(tests);
        Queries.register(tests);
        Replies.register(tests);
        if (only != null) {
            List<String> names = List.of(only.split(","));
            if (!tests.keySet().containsAll(names)) {
                throw new IllegalArgumentException("--only " + only + ": there are " + tests.keySet());
            }
            tests.keySet().retainAll(names);
        }
        // Clients leave threads behind that are no daemons.
        System.exit(run(tests, nameServers, move, limit) ? 0 : 1);
    }

    private static boolean run(Map<String, Test> tests, String nameServers, String move, int limit) throws Exception {
        Phase phase = new Phase(move != null, tests.size());
        ExecutorService pool = Executors.newCachedThreadPool();
        long begin = System.nanoTime();
        long until = begin + TimeUnit.SECONDS.toNanos(limit);
        Map<String, Future<Verdict>> running = new LinkedHashMap<>();
        List<Kit> kits = new ArrayList<>();
        for (Map.Entry<String, Test> t : tests.entrySet()) {
            Kit kit = new Kit(t.getKey(), nameServers, phase);
            kits.add(kit);
            running.put(t.getKey(), pool.submit(() -> judge(kit, t.getValue())));
        }
        boolean good = true;
        if (move != null) {
            phase.awaitReady(60);
            Process p = new ProcessBuilder("bash", "-c", move).inheritIO().start();
            if (!p.waitFor(limit, TimeUnit.SECONDS) || p.exitValue() != 0) {
                System.out.println("the leader was not moved as planned: " + move);
                p.destroyForcibly();
                good = false;
            }
            phase.over();
        }
        for (Map.Entry<String, Future<Verdict>> r : running.entrySet()) {
            Verdict v;
            try {
                v = r.getValue().get(Math.max(1, until - System.nanoTime()), TimeUnit.NANOSECONDS);
            } catch (TimeoutException e) {
                v = new Verdict(seconds(begin), "still running after " + limit + " s\n" + stacks(r.getKey()));
            }
            good &= v.problem == null;
            System.out.printf(Locale.ROOT, "  %-22s %6.1f s  %s%n", r.getKey(), v.seconds, v.problem == null ? "ok" : "FAILED " + v.problem);
        }
        CountDownLatch closed = new CountDownLatch(kits.size());
        for (Kit kit : kits) {
            pool.submit(() -> {
                kit.close();
                closed.countDown();
            });
        }
        closed.await(20, TimeUnit.SECONDS); // a consumer's shutdown may wait for answers
        return good;
    }

    private static double seconds(long since) {
        return (System.nanoTime() - since) / 1e9;
    }

    private static Verdict judge(Kit kit, Test test) {
        Thread.currentThread().setName("test " + kit.name);
        long begin = System.nanoTime();
        try {
            test.run(kit);
            return new Verdict(seconds(begin), null);
        } catch (Throwable t) {
            StringWriter w = new StringWriter();
            t.printStackTrace(new PrintWriter(w));
            return new Verdict(seconds(begin), w.toString());
        } finally {
            kit.ready();
        }
    }

    private static String stacks(String name) {
        StringBuilder b = new StringBuilder();
        Thread.getAllStackTraces().forEach((thread, frames) -> {
            if (thread.getName().equals("test " + name)) {
                for (StackTraceElement f : frames) {
                    b.append("    at ").append(f).append('\n');
                }
            }
        });
        return b.toString();
    }

    private static final class Verdict {
        final double seconds;
        final String problem;

        Verdict(double seconds, String problem) {
            this.seconds = seconds;
            this.problem = problem;
        }
    }
}
