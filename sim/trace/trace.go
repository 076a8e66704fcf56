// Package trace is the record of one simulated run as people look at it: what happened between the
// nodes, what became of every page, and which promise was broken. It is data and nothing else. Package
// sim writes it, and only when asked to; package sim/report draws it.
//
// Times are simulated nanoseconds since the start of the run. Nodes are numbered as in the event log;
// World stands for what is no node.
package trace

// World is the number of what is no node: the proxy, the network, the engines' clients.
const World = -1

// Never is the end of what had not ended when the run did.
const Never = -1

// A Trace is the record of one run.
type Trace struct {
	Title   string `json:"title"`   // the command that replays it
	Seed    uint64 `json:"-"`       // beyond what a page's numbers hold; Title has it
	Hash    string `json:"hash"`    // of the whole event log
	End     int64  `json:"end"`     // the last instant of the run
	Dropped int    `json:"dropped"` // events at the start that were more than the recorder keeps

	// Refs names what events speak of, such as "n1 page 3", "request r7" or "transfer 12". Events and
	// the rest refer to them by index.
	Refs []string `json:"refs"`

	Nodes     []Node     `json:"nodes"`
	Events    []Event    `json:"events"`
	Messages  []Message  `json:"messages"`
	Transfers []Transfer `json:"transfers"`
	Grants    []Grant    `json:"grants"`
	Commands  []Command  `json:"commands"`
	Pages     []Page     `json:"pages"`
	Violation *Violation `json:"violation,omitempty"` // nil: every promise held
}

// A Node is a lane of the picture.
type Node struct {
	Name  string `json:"name"`
	Role  string `json:"role"` // "sender", "receiver" or "both"
	Pages int    `json:"pages"`
	Lives []Span `json:"lives"` // State: "up", "down" or "frozen", without gaps
}

// A Span is a stretch of time in which something was so.
type Span struct {
	From  int64  `json:"from"`
	To    int64  `json:"to"` // Never: until the end of the run
	State string `json:"state"`
	Note  string `json:"note,omitempty"`
	Refs  []int  `json:"refs,omitempty"`
}

// An Event is one line of the event log.
type Event struct {
	At    int64  `json:"at"`
	Node  int    `json:"node"`
	Group Group  `json:"group"`
	Text  string `json:"text"` // as the event log has it
	Words string `json:"words,omitempty"`
	Refs  []int  `json:"refs,omitempty"`
	Cause int    `json:"cause,omitempty"` // how many events before it stands the one that its machine answered so; 0: none
}

// A Group is what kind of event it is; the page filters by it.
type Group string

// The groups.
const (
	Engine  Group = "engine"  // commands, deliveries, what engines do
	Control Group = "control" // connections and messages
	Memory  Group = "memory"  // grants, revocations
	Data    Group = "data"    // transfers and their pieces
	Fault   Group = "fault"
	Fact    Group = "fact"  // what machines observe
	Phase   Group = "phase" // of the run
)

// A Message is one message on its way.
type Message struct {
	From    int    `json:"from"`
	To      int    `json:"to"`
	Channel string `json:"channel"`
	Kind    string `json:"kind"` // its tag, or "noise"
	Sent    int64  `json:"sent"`
	Arrived int64  `json:"arrived"`        // when its receiver was given it, the last time; Never: not at all
	Lost    bool   `json:"lost,omitempty"` // it can never arrive any more
	Text    string `json:"text,omitempty"` // its fields, for people
	Refs    []int  `json:"refs,omitempty"`
}

// A Transfer is one batch of pages on its way.
type Transfer struct {
	ID       uint64  `json:"id"`
	From     int     `json:"from"`
	To       int     `json:"to"`
	Grant    int     `json:"grant"` // in Refs
	Started  int64   `json:"started"`
	Asked    int64   `json:"asked"`   // fenced: at the owner of the pages; Never: not
	Ended    int64   `json:"ended"`   // its initiator was told an outcome
	Settled  int64   `json:"settled"` // its initiator knows that nothing touches the pages any more
	NotAfter int64   `json:"not_after"`
	Code     string  `json:"code,omitempty"`
	Stores   []Store `json:"stores"`
	Refs     []int   `json:"refs,omitempty"`
}

// A Store is half a page being written at the target.
type Store struct {
	At   int64 `json:"at"`
	Page int   `json:"page"`
	Half int   `json:"half"`
}

// A Grant is a permission to write pages, as its giver's driver saw it.
type Grant struct {
	Ref     int   `json:"ref"`
	Node    int   `json:"node"`
	Life    int   `json:"life"`
	Peer    int   `json:"peer"` // World: it names nobody that lives
	From    int64 `json:"from"`
	Lease   int64 `json:"lease"`   // when its lease ends
	Revoked int64 `json:"revoked"` // its machine asked for it back
	Gone    int64 `json:"gone"`    // nothing can use it any more: every page landed, revoked, or its giver died
	Pages   []int `json:"pages"`
	Refs    []int `json:"refs,omitempty"`
}

// A Command is one of an engine.
type Command struct {
	Ticket    uint64 `json:"ticket"`
	Node      int    `json:"node"`
	Want      string `json:"want"`
	Given     int64  `json:"given"`
	Delivered int64  `json:"delivered"`
	Returned  int64  `json:"returned"` // of memory that was held longer; Never otherwise
	Code      string `json:"code,omitempty"`
	Refs      []int  `json:"refs,omitempty"`
}

// A Page is one page's states over time, free stretches left out. The states are those of PageStates.
type Page struct {
	Node  int    `json:"node"`
	Index int    `json:"index"`
	Ref   int    `json:"ref"`
	Spans []Span `json:"spans"`
}

// A Violation is the broken promise.
type Violation struct {
	At       int64    `json:"at"`
	Property string   `json:"property"`
	Promise  string   `json:"promise"` // what the property says
	Story    string   `json:"story"`   // what happened instead
	Concerns []int    `json:"concerns"`
	Steps    []int    `json:"steps"` // in Events: the last that touched what it concerns
	Stack    string   `json:"stack,omitempty"`
	Nodes    []int    `json:"nodes"`
	Keys     []string `json:"keys,omitempty"` // the keys concerned, in full
}
