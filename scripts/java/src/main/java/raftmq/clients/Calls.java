package raftmq.clients;

import java.util.ArrayList;
import java.util.Comparator;
import java.util.List;
import java.util.Locale;

/**
 * Sends or pulls of one kind, each from its begin to its end in milliseconds since 1970, retries of the client's own included: what a
 * change of leader was to them.
 */
final class Calls {
    private static final class Call {
        final long begin;
        final long end;
        final Throwable failure;

        Call(long begin, long end, Throwable failure) {
            this.begin = begin;
            this.end = end;
            this.failure = failure;
        }
    }

    private final List<Call> calls = new ArrayList<>();

    static long now() {
        return System.currentTimeMillis();
    }

    void ok(long begin) {
        add(begin, null);
    }

    /** A null failure is a success. */
    synchronized void add(long begin, Throwable failure) {
        calls.add(new Call(begin, now(), failure));
    }

    /** Whether a call that was begun after the given time has succeeded. */
    synchronized boolean succeeded(long since) {
        return calls.stream().anyMatch(c -> c.failure == null && c.begin > since);
    }

    /** What happened after a change. Times are in seconds. */
    static final class Gap {
        /** From the change to the first success of a call that was begun after it; negative: none. */
        double first = -1;
        /** What the slowest call that was begun after it took. */
        double slowest;
        /** Calls that were under way. */
        int hanging;
        /** What the slowest of those still took. */
        double hung;
        /** The longest time without a success. */
        double longest;

        int failed;
        Throwable failure;

        @Override
        public String toString() {
            String s = String.format(Locale.ROOT, "begun after it: first %5.2f s, slowest %5.2f s; under way: %d, slowest %5.2f s; without a success: %5.2f s; failed: %d",
                    first, slowest, hanging, hung, longest, failed);
            return failure == null ? s : s + " (" + String.valueOf(failure).lines().findFirst().orElse("") + ")";
        }
    }

    synchronized Gap gap(long change) {
        Gap g = new Gap();
        calls.sort(Comparator.comparingLong(c -> c.end));
        long last = 0;
        for (Call c : calls) {
            boolean after = c.begin > change;
            if (c.end > change) {
                if (after) {
                    g.slowest = Math.max(g.slowest, (c.end - c.begin) / 1000.0);
                } else {
                    g.hanging++;
                    g.hung = Math.max(g.hung, (c.end - change) / 1000.0);
                }
                if (c.failure != null) {
                    g.failed++;
                    g.failure = g.failure == null ? c.failure : g.failure;
                }
            }
            if (c.failure != null) {
                continue;
            }
            if (c.end > change && last != 0) {
                g.longest = Math.max(g.longest, (c.end - last) / 1000.0);
            }
            if (after && g.first < 0) {
                g.first = (c.end - change) / 1000.0;
            }
            last = c.end;
        }
        return g;
    }
}
