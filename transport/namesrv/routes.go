package namesrv

import (
	"errors"
	"maps"
	"strings"

	"raftmq/fsm/metadata"
	"raftmq/membership/route"
	"raftmq/transport/remoting"
)

// Bits of a topic's system flag (RocketMQ TopicSysFlag).
const (
	flagUnit    = 1
	flagUnitSub = 2
)

// faqHint is what a 4.9.4 name server appends (FAQUrl.APPLY_TOPIC_URL); operators know and search for it.
const faqHint = "\nSee http://rocketmq.apache.org/docs/faq/ for further details."

// topicRoute makes the answer to 105. The error says why it is none.
func (p *Processor) topicRoute(cmd *remoting.Command) (*remoting.Command, error) {
	topic := cmd.GetString("topic")
	rt, err := p.cfg.Routes.Topic(topic)
	switch {
	case errors.Is(err, route.ErrNoTopic):
		if cmd.Get("topic") == nil {
			topic = "null" // as Java prints an absent one
		}
		return refuse(remoting.ResponseTopicNotExist, "No topic route info in name server for the topic: "+topic+faqHint), err
	case err != nil:
		return unknown(err), err
	}
	body := remoting.TopicRouteData{
		BrokerDatas:    make([]remoting.BrokerData, len(rt.Brokers)),
		QueueDatas:     make([]remoting.QueueData, len(rt.Queues)),
		OrderTopicConf: rt.OrderTopicConf,
	}
	for i, b := range rt.Brokers {
		body.BrokerDatas[i] = p.brokerData(b, cmd)
	}
	for i, q := range rt.Queues {
		body.QueueDatas[i] = remoting.QueueData{BrokerName: q.BrokerName, Perm: int32(q.Perm), ReadQueueNums: int32(q.Read),
			TopicSysFlag: int32(q.SysFlag), WriteQueueNums: int32(q.Write)}
	}
	return &remoting.Command{Body: body.Encode()}, nil
}

// ahead is the route that the retry topic of a group will have, nil when nothing is known to make it.
func (p *Processor) ahead(cmd *remoting.Command) *remoting.Command {
	group, ok := strings.CutPrefix(cmd.GetString("topic"), metadata.RetryPrefix)
	if !ok || p.cfg.RetryQueues == nil {
		return nil
	}
	queues, ok := p.cfg.RetryQueues(group)
	if !ok {
		return nil
	}
	brokers, err := p.cfg.Routes.Clusters()
	if err != nil {
		return nil
	}
	body := remoting.TopicRouteData{}
	for _, b := range brokers {
		body.BrokerDatas = append(body.BrokerDatas, p.brokerData(b, cmd))
		body.QueueDatas = append(body.QueueDatas, remoting.QueueData{BrokerName: b.Name, Perm: metadata.PermRead | metadata.PermWrite,
			ReadQueueNums: int32(queues), WriteQueueNums: int32(queues)})
	}
	return &remoting.Command{Body: body.Encode()}
}

// brokerData is a group as clients see it. With an address of the operator's for whoever leads, that is broker 0; the
// leader's own would tell clients nothing more. A client of 5.x gets 5.x's field too: Rust's cannot read a route without it.
func (p *Processor) brokerData(b route.Broker, cmd *remoting.Command) remoting.BrokerData {
	if p.cfg.LeaderAddress != "" {
		b.Addrs = maps.Clone(b.Addrs)
		b.Addrs[0] = p.cfg.LeaderAddress
	}
	d := remoting.BrokerData{BrokerAddrs: b.Addrs, BrokerName: b.Name, Cluster: b.Cluster}
	if cmd.Version >= remoting.Version5_0_0 {
		d.EnableActingMaster = new(bool)
	}
	return d
}

// clusterInfo answers 106.
func (p *Processor) clusterInfo(cmd *remoting.Command) *remoting.Command {
	brokers, err := p.cfg.Routes.Clusters()
	if err != nil {
		return unknown(err)
	}
	body := remoting.ClusterInfo{BrokerAddrTable: map[string]remoting.BrokerData{}, ClusterAddrTable: map[string][]string{}}
	for _, b := range brokers {
		body.BrokerAddrTable[b.Name] = p.brokerData(b, cmd)
		body.ClusterAddrTable[b.Cluster] = append(body.ClusterAddrTable[b.Cluster], b.Name)
	}
	return &remoting.Command{Body: body.Encode()}
}

func topicList(names []string, err error) *remoting.Command {
	if err != nil {
		return unknown(err)
	}
	body := remoting.TopicList{TopicList: names}
	return &remoting.Command{Body: body.Encode()}
}

// allTopics answers 206.
func (p *Processor) allTopics(*remoting.Command) *remoting.Command {
	return topicList(p.cfg.Routes.Topics("", nil))
}

// topicsByCluster answers 224. An unknown cluster has no topics, and so has none at all.
func (p *Processor) topicsByCluster(cmd *remoting.Command) *remoting.Command {
	cluster := cmd.GetString("cluster")
	if cluster == "" {
		return topicList([]string{}, nil)
	}
	return topicList(p.cfg.Routes.Topics(cluster, nil))
}

// topicsByFlag answers 311, 312 and 313.
func (p *Processor) topicsByFlag(keep func(sysFlag int) bool) answer {
	return func(*remoting.Command) *remoting.Command { return topicList(p.cfg.Routes.Topics("", keep)) }
}

// systemTopics answers 304: the cluster names and then the broker names, which are topics too,
// and the address of one broker, which knows the rest (305).
func (p *Processor) systemTopics(cmd *remoting.Command) *remoting.Command {
	brokers, err := p.cfg.Routes.Clusters()
	if err != nil {
		return unknown(err)
	}
	var body remoting.TopicList
	seen := map[string]bool{}
	for _, b := range brokers {
		if !seen[b.Cluster] {
			seen[b.Cluster] = true
			body.TopicList = append(body.TopicList, b.Cluster)
		}
	}
	for _, b := range brokers {
		body.TopicList = append(body.TopicList, b.Name)
		if body.BrokerAddr == "" {
			body.BrokerAddr = p.brokerData(b, cmd).BrokerAddrs[0]
		}
	}
	return &remoting.Command{Body: body.Encode()}
}

// deleteTopic answers 216. Tools send it to every name server after 215 to the brokers; here
// the topic went with that command, on all nodes.
func (p *Processor) deleteTopic(*remoting.Command) *remoting.Command { return &remoting.Command{} }

// writePerm answers 205 and 327. RocketMQ's name server changes the permission of all topics
// of a broker in its own memory, to drain it. Here the leader of a brokerName moves instead.
func (p *Processor) writePerm(countField string) answer {
	return func(cmd *remoting.Command) *remoting.Command {
		name := cmd.GetString("brokerName")
		brokers, err := p.cfg.Routes.Clusters()
		if err != nil {
			return unknown(err)
		}
		for _, b := range brokers {
			if b.Name == name {
				return refuse(remoting.ResponseSystemError, "write permission of a whole broker cannot be changed in raftmq: to take a node out of service stop it, its leadership moves to another one; to close a topic change that topic's permission")
			}
		}
		resp := &remoting.Command{}
		resp.Set(countField, "0")
		return resp
	}
}
