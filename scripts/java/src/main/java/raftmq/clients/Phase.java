package raftmq.clients;

import java.util.concurrent.CountDownLatch;
import java.util.concurrent.TimeUnit;

/** What all tests of a run share: whether leadership moves meanwhile, and for how long. */
final class Phase {
    final boolean moves;
    private final CountDownLatch ready;
    private volatile boolean over;

    Phase(boolean moves, int tests) {
        this.moves = moves;
        this.ready = new CountDownLatch(tests);
        this.over = !moves;
    }

    void ready() {
        ready.countDown();
    }

    void awaitReady(int seconds) throws InterruptedException {
        ready.await(seconds, TimeUnit.SECONDS);
    }

    void over() {
        over = true;
    }

    boolean isOver() {
        return over;
    }
}
