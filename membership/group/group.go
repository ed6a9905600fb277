// Package group keeps what clients say in heartbeats: live producers and consumers of each
// group, their subscriptions, and queue locks. Local to the node and lost on restart.
package group
