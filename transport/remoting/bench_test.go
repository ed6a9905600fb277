package remoting

import (
	"encoding/binary"
	"encoding/json"
	"maps"
	"slices"
	"testing"
)

// rawFrame makes a frame, without its length, of a header as written and a body.
func rawFrame(serialize SerializeType, header string, body []byte) []byte {
	f := binary.BigEndian.AppendUint32(nil, uint32(serialize)<<24|uint32(len(header)))
	f = append(f, header...)
	return append(f, body...)
}

const (
	goSend = `{"code":10,"language":"GO","version":317,"opaque":17,"flag":0,"remark":"","extFields":{` +
		`"producerGroup":"golden_go_pg","topic":"GoldenGo","queueId":"1","sysFlag":"0","bornTimestamp":"1795993214567","flag":"0",` +
		`"properties":"KEYS\u0001go1\u0002UNIQ_KEY\u0001C00002020BB1000000004EF8D8A80001\u0002WAIT\u0001true\u0002TAGS\u0001TagA\u0002",` +
		`"reconsumeTimes":"0","unitMode":"false","maxReconsumeTimes":"0","batch":"false","defaultTopic":"TBW102","defaultTopicQueueNums":"4"}}`
	javaSend = `{"code":310,"extFields":{"a":"golden_pg","b":"GoldenA","c":"TBW102","d":"4","e":"0","f":"0","g":"1795992737215","h":"0",` +
		`"i":"size\u00011\u0002KEYS\u0001key0\u0002UNIQ_KEY\u0001FD00000000000000000000000000000219545FFD2B27951A6DBE0000\u0002WAIT\u0001true\u0002TAGS\u0001TagA",` +
		`"j":"0","k":"false","m":"false"},"flag":0,"language":"JAVA","opaque":24,"serializeTypeCurrentRPC":"JSON","version":401}`
	javaPull = `{"code":11,"extFields":{"queueId":"1","maxMsgNums":"32","sysFlag":"2","suspendTimeoutMillis":"15000","commitOffset":"0",` +
		`"topic":"GoldenA","queueOffset":"0","expressionType":"TAG","subVersion":"1795992740323","consumerGroup":"golden_cg"},` +
		`"flag":0,"language":"JAVA","opaque":136,"serializeTypeCurrentRPC":"JSON","version":401}`
)

// BenchmarkHotPaths covers what runs once per message; see hotPaths for the names.
func BenchmarkHotPaths(b *testing.B) {
	paths := hotPaths(b)
	for _, name := range slices.Sorted(maps.Keys(paths)) {
		run := paths[name]
		b.Run(name, func(b *testing.B) {
			b.ReportAllocs()
			for b.Loop() {
				run()
			}
		})
	}
}

// BenchmarkHeaderByJSON is the rival: the same header through encoding/json.
func BenchmarkHeaderByJSON(b *testing.B) {
	for name, header := range map[string]string{"send=10": goSend, "send=310": javaSend, "pull=11": javaPull} {
		b.Run(name, func(b *testing.B) {
			b.ReportAllocs()
			for b.Loop() {
				var h struct {
					Code, Version, Opaque, Flag int32
					Language, Remark            string
					ExtFields                   map[string]string
				}
				if err := json.Unmarshal([]byte(header), &h); err != nil {
					b.Fatal(err)
				}
			}
		})
	}
}
