// Package e2e holds the end-to-end tests: real raftmq processes on real sockets, met by Apache's
// Go client and by raw protocol requests. It has no code besides tests.
//
// The server is built once per test run, or taken from RAFTMQ_BIN. Tests that need links that
// can be cut (network namespaces: root and iproute2) are skipped, with that reason, where there are none. Long
// ones are skipped with -short.
package e2e
