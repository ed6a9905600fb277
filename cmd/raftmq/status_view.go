package main

import (
	"fmt"
	"io"
	"strconv"
	"strings"
	"text/tabwriter"
	"time"
)

// The tables of "cluster status": a line a node, each no wider than 120 columns with ordinary names and addresses.

// column is one of a table's.
type column struct {
	title string
	text  func(n *nodeAnswer) string // of a node that answers
}

// nodeColumns are the first table: who they are and how far.
var nodeColumns = []column{
	{"ROLE", func(n *nodeAnswer) string { return roleText(n.Status) }},
	{"TERM", func(n *nodeAnswer) string { return strconv.FormatUint(n.Status.Term, 10) }},
	{"APPLIED", func(n *nodeAnswer) string { return strconv.FormatUint(n.Status.AppliedIndex, 10) }},
	{"BEHIND", behindText},
	{"CONTACT", func(n *nodeAnswer) string { return contactText(n.Status) }},
	{"MODE", func(n *nodeAnswer) string { return modeText(n.Status) }},
	{"VERSION", func(n *nodeAnswer) string { return n.Status.Version }},
	{"UP", func(n *nodeAnswer) string { return upText(time.Duration(n.Status.UptimeSeconds) * time.Second) }},
	{"CLIENT", func(n *nodeAnswer) string { return n.Address }},
}

// storeColumns are the second one: what they store.
var storeColumns = []column{
	{"LOG", func(n *nodeAnswer) string { return fmt.Sprintf("%d-%d", n.Status.LogMin, n.Status.LogMax) }},
	{"SIZE", func(n *nodeAnswer) string { return formatBytes(n.Status.LogMax - n.Status.LogMin) }},
	{"NOT FLUSHED", func(n *nodeAnswer) string { return formatBytes(n.Status.LogMax - n.Status.FlushedTo) }},
	{"QUEUES", func(n *nodeAnswer) string { return strconv.Itoa(n.Status.Queues) }},
	{"DISK", func(n *nodeAnswer) string { return diskText(n.Status) }},
	{"SCRUB", func(n *nodeAnswer) string { return scrubText(n.Status) }},
	{"REPAIR", func(n *nodeAnswer) string { return repairText(n.Status) }},
	{"CATCH-UP", catchUpText},
}

// writeStatus prints "cluster status".
func writeStatus(out io.Writer, nodes []nodeAnswer) error {
	if err := writeTable(out, nodes, nodeColumns, true); err != nil {
		return err
	}
	if firstAnswer(nodes) != nil {
		if _, err := io.WriteString(out, "\n"); err != nil {
			return err
		}
		if err := writeTable(out, nodes, storeColumns, false); err != nil {
			return err
		}
	}
	return writeRemarks(out, nodes)
}

// writeTable prints one table; silent lists the nodes that don't answer too.
func writeTable(out io.Writer, nodes []nodeAnswer, columns []column, silent bool) error {
	w := tabwriter.NewWriter(out, 0, 0, 2, ' ', 0)
	fmt.Fprint(w, "NODE")
	for _, c := range columns {
		fmt.Fprint(w, "\t", c.title)
	}
	fmt.Fprintln(w)
	for i := range nodes {
		n := &nodes[i]
		switch {
		case n.Status != nil:
			fmt.Fprint(w, n.Status.NodeID)
			for _, c := range columns {
				fmt.Fprint(w, "\t", c.text(n))
			}
		case silent:
			fmt.Fprint(w, nodeName(n), "\tno answer", strings.Repeat("\t-", len(columns)-2), "\t", n.Address)
		default:
			continue
		}
		fmt.Fprintln(w)
	}
	return w.Flush()
}

// nodeName is the id of a node that may not have answered.
func nodeName(n *nodeAnswer) string {
	if n.NodeID == "" {
		return "?"
	}
	return n.NodeID
}

// silentText says what is wrong with a node that does not answer, and what to do.
func silentText(n nodeAnswer) string {
	n.Error = strings.TrimPrefix(n.Error, "client: ")
	if n.NodeID == "" {
		return fmt.Sprintf("%s: no answer (%s): start the node, or name another address\n", n.Address, n.Error)
	}
	return fmt.Sprintf("%s: no answer at %s (%s): start it; if its machine is gone for good: raftmq cluster remove %s\n", n.NodeID, n.Address, n.Error, n.NodeID)
}

// whyNoLeader says what to do about it.
func whyNoLeader(nodes []nodeAnswer, view *nodeStatus) string {
	if view == nil {
		return ": no node answers"
	}
	voters, there := 0, 0
	for _, p := range view.Peers {
		if p.Suffrage == "voter" {
			voters++
			if statusOf(nodes, p.NodeID) != nil {
				there++
			}
		}
	}
	switch {
	case voters == 0:
		return ""
	case there*2 <= voters:
		return fmt.Sprintf(": %d of %d voters answer, and a majority is needed: start the others; if their disks are gone for good: raftmq cluster recover", there, voters)
	}
	return fmt.Sprintf(", though %d of %d voters answer: an election is going on, or they do not reach each other's Raft ports", there, voters)
}

// differences says where nodes should be alike and are not.
func differences(nodes []nodeAnswer) string {
	var b strings.Builder
	level, newest, all := 0, 0, true
	modes := map[string]bool{}
	for _, n := range nodes {
		if n.Status == nil {
			all = false
			continue
		}
		level = max(level, n.Status.ClusterLevel)
		if newest == 0 || n.Status.Level < newest {
			newest = n.Status.Level
		}
		if n.Status.Mode != "" {
			modes[n.Status.Mode] = true
		}
	}
	if all && level > 0 && newest > level {
		fmt.Fprintf(&b, "all nodes can apply feature level %d, the cluster uses %d: raftmq cluster upgrade ends the upgrade; until then each node can go back to the older raftmq\n", newest, level)
	}
	if len(modes) > 1 {
		b.WriteString("some nodes fsync before they acknowledge and some do not: what SEND_OK means depends on who leads; give all the same --unsafe-raft-sync-interval\n")
	}
	return b.String()
}

func roleText(s *nodeStatus) string {
	role := s.Role
	switch {
	case s.Role == "leader" && !s.Ready:
		role = "leader, not ready"
	case s.suffrage(s.NodeID) == "nonvoter":
		role = s.Role + ", no vote"
	}
	if s.Drain != nil {
		role += ", draining"
	}
	return role
}

// behind is how much less a node has than the leader, which may have been asked first.
func behind(leader, node uint64) uint64 {
	if node >= leader {
		return 0
	}
	return leader - node
}

func behindText(n *nodeAnswer) string {
	switch {
	case n.Behind == nil:
		return "-"
	case *n.Behind == behindLeader{}:
		return "0"
	}
	return fmt.Sprintf("%d (%s)", n.Behind.Entries, formatBytes(n.Behind.Bytes))
}

func contactText(s *nodeStatus) string {
	switch {
	case s.Role == "leader":
		return "-"
	case s.LastContactMillis < 0:
		return "never"
	}
	return (time.Duration(s.LastContactMillis) * time.Millisecond).Round(10 * time.Millisecond).String()
}

// upText is short for long times.
func upText(d time.Duration) string {
	if d < 100*time.Hour {
		return d.String()
	}
	return strconv.Itoa(int(d/(24*time.Hour))) + " days"
}

func modeText(s *nodeStatus) string {
	switch s.Mode {
	case "":
		return "-"
	case modeUnsafe:
		return "UNSAFE"
	}
	return s.Mode
}

func diskText(s *nodeStatus) string {
	switch {
	case s.DiskProblem != "":
		return "SICK"
	case s.DiskTotal == 0 || s.DiskRatio < 0:
		return "-"
	}
	// The ratio that the store and its retention go by.
	return fmt.Sprintf("%.0f%% of %s", 100*s.DiskRatio, formatBytes(s.DiskTotal))
}

// formatBytes rounds a size for people.
func formatBytes(n int64) string {
	for _, u := range []struct {
		name  string
		bytes int64
	}{{"TiB", 1024 * gib}, {"GiB", gib}, {"MiB", mib}, {"KiB", kib}} {
		if n >= u.bytes {
			return strconv.FormatFloat(float64(n)/float64(u.bytes), 'f', 1, 64) + " " + u.name
		}
	}
	return strconv.FormatInt(n, 10) + " B"
}
