package remoting

// BrokerStatsData is the answer's body of VIEW_BROKER_STATS_DATA (315).
type BrokerStatsData struct {
	Day    BrokerStatsItem `json:"statsDay"`
	Hour   BrokerStatsItem `json:"statsHour"`
	Minute BrokerStatsItem `json:"statsMinute"`
}

// BrokerStatsItem is one window of it.
type BrokerStatsItem struct {
	Average float64 `json:"avgpt"` // of the value, each time it was counted
	Sum     int64   `json:"sum"`
	TPS     float64 `json:"tps"` // of the value, a second
}
