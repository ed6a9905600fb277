package workload

import (
	"context"
	"fmt"
	"strconv"
	"time"

	"raftmq/transport/client"
	"raftmq/transport/remoting"
)

// CreateTopic creates a topic through the leader and waits until each of the nodes answers its
// route with that many queues.
func CreateTopic(ctx context.Context, addrs []string, topic string, queues int) error {
	cl := client.NewCluster(addrs)
	defer cl.Close()
	cmd := &remoting.Command{Code: remoting.RequestUpdateAndCreateTopic}
	n := strconv.Itoa(queues)
	for _, kv := range [][2]string{
		{"topic", topic}, {"defaultTopic", "TBW102"}, {"readQueueNums", n}, {"writeQueueNums", n}, {"perm", "6"},
		{"topicFilterType", "SINGLE_TAG"}, {"topicSysFlag", "0"}, {"order", "false"},
	} {
		cmd.Set(kv[0], kv[1])
	}
	resp, err := cl.InvokeRepeated(ctx, cmd)
	if err != nil {
		return fmt.Errorf("workload: create topic %s: %w", topic, err)
	}
	if resp.Code != 0 {
		return fmt.Errorf("workload: create topic %s: code %d, %s", topic, resp.Code, resp.Remark)
	}
	for _, addr := range addrs {
		if err := awaitRoute(ctx, addr, topic, queues); err != nil {
			return err
		}
	}
	return nil
}

func awaitRoute(ctx context.Context, addr, topic string, queues int) error {
	cl := client.NewCluster([]string{addr})
	defer cl.Close()
	for {
		route, err := cl.Route(ctx, topic)
		if err == nil {
			for _, q := range route.Queues {
				if q.WriteQueues == queues && q.ReadQueues == queues {
					return nil
				}
			}
			err = fmt.Errorf("queues %+v", route.Queues)
		}
		if !sleep(ctx, 20*time.Millisecond) {
			return fmt.Errorf("workload: route of %s at %s: %w: %w", topic, addr, ctx.Err(), err)
		}
	}
}
