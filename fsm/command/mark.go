package command

// Mark changes nothing: it is a point of the log at which every node can say what it holds, so that replicas can be compared
// while writes go on.
type Mark struct {
	ID string `json:"id"`
}
