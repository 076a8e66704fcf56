// Package trace defines the record of one simulated run for a human reader: the events between the nodes, the states of
// every page over time, and the property that was violated, if any. The package contains only data types. Package sim
// writes a trace when the caller requests one, and package sim/report draws the trace as an HTML page.
//
// Times are simulated nanoseconds since the start of the run. Nodes are numbered as in the event log; NoNode stands for
// everything that is not a node.
//
// Example: a sender reserves page 3, a receiver grants a page, and a transfer stores both halves. The trace then has a
// Command with the ticket of the Reserve, a Message for the allocation request, a Grant, a Transfer with two Stores,
// and for each page the Spans "reserved", "lent" or "granted" and "landing".
package trace

// NoNode is the node number for everything that is not a node: the proxy, the network, the clients of the engines.
const NoNode = -1

// Never is the end time of a span or an action that had not ended when the run ended.
const Never = -1

// A Trace is the record of one run.
type Trace struct {
	Title   string `json:"title"`   // the command that replays the run
	Seed    uint64 `json:"-"`       // omitted: too large for a JavaScript number; Title contains it
	Hash    string `json:"hash"`    // hash of the whole event log; empty: there is none
	Verdict string `json:"-"`       // what is said of the run if nothing was violated; empty: every promise held
	End     int64  `json:"end"`     // the last instant of the run
	Dropped int    `json:"dropped"` // number of events at the start that exceeded the capacity of the recorder

	// Refs holds the names of the things that events mention, such as "n1 page 3", "request r7" or "transfer 12". The
	// records refer to these names by index.
	Refs []string `json:"refs"`

	Nodes     []Node     `json:"nodes"`
	Events    []Event    `json:"events"`
	Messages  []Message  `json:"messages"`
	Transfers []Transfer `json:"transfers"`
	Grants    []Grant    `json:"grants"`
	Commands  []Command  `json:"commands"`
	Pages     []Page     `json:"pages"`
	Violation *Violation `json:"violation,omitempty"` // nil if no property was violated
}

// A Node is a lane of the drawing.
type Node struct {
	Name   string `json:"name"`
	Role   string `json:"role"` // "sender", "receiver" or "both"
	Pages  int    `json:"pages"`
	States []Span `json:"lives"` // State: "up", "down" or "frozen", without gaps
}

// A Span is a period of time in which the state does not change.
type Span struct {
	From  int64  `json:"from"`
	To    int64  `json:"to"` // Never: until the end of the run
	State string `json:"state"`
	Note  string `json:"note,omitempty"`
	Refs  []int  `json:"refs,omitempty"`
}

// An Event is a line of the event log.
type Event struct {
	At          int64  `json:"at"`
	Node        int    `json:"node"`
	Group       Group  `json:"group"`
	Text        string `json:"text"` // the line of the event log
	Explanation string `json:"words,omitempty"`
	// Marks are the rare paths that the machine took in the step that this event began, such as "link/nobody-there".
	Marks []string `json:"marks,omitempty"`
	Refs  []int    `json:"refs,omitempty"`
	Cause int      `json:"cause,omitempty"` // distance, in events, to the earlier event that caused this one; 0 if none
}

// A Group is the kind of an event. The page filters events by group.
type Group string

// The groups.
const (
	Engine  Group = "engine"  // commands, deliveries, what engines do
	Control Group = "control" // connections and messages
	Memory  Group = "memory"  // grants, revocations
	Data    Group = "data"    // transfers and their pieces
	Fault   Group = "fault"
	Fact    Group = "fact"  // observations of the machines
	Phase   Group = "phase" // phases of the run
)

// A Message is a message between two nodes.
type Message struct {
	From    int    `json:"from"`
	To      int    `json:"to"`
	Channel string `json:"channel"`
	Kind    string `json:"kind"` // its tag, or "noise"
	Sent    int64  `json:"sent"`
	Arrived int64  `json:"arrived"`        // time of the last delivery to the receiver; Never if there was none
	Lost    bool   `json:"lost,omitempty"` // the message can no longer arrive
	Text    string `json:"text,omitempty"` // the fields of the message in readable form
	Refs    []int  `json:"refs,omitempty"`
}

// A Transfer is the transfer of a batch of pages.
type Transfer struct {
	ID        uint64  `json:"id"`
	From      int     `json:"from"`
	To        int     `json:"to"`
	Grant     int     `json:"grant"` // index in Refs
	Started   int64   `json:"started"`
	Requested int64   `json:"asked"`   // for a fenced transfer, when the owner of the pages was asked; Never otherwise
	Ended     int64   `json:"ended"`   // when the initiator received an outcome
	Settled   int64   `json:"settled"` // when the initiator knew that nothing touches the pages any more
	NotAfter  int64   `json:"not_after"`
	Code      string  `json:"code,omitempty"`
	Stores    []Store `json:"stores"`
	Refs      []int   `json:"refs,omitempty"`
}

// A Store is the write of half a page at the target.
type Store struct {
	At   int64 `json:"at"`
	Page int   `json:"page"`
	Half int   `json:"half"`
}

// A Grant is a permission to write or read pages, as seen by the driver of the node that issued the grant.
type Grant struct {
	Ref         int   `json:"ref"`
	Node        int   `json:"node"`
	Incarnation int   `json:"life"`
	Peer        int   `json:"peer"` // NoNode if the grant names no live node
	From        int64 `json:"from"`
	Read        bool  `json:"read,omitempty"` // the peer may only read
	Lease       int64 `json:"lease"`          // when the lease of the grant ends; Never: unknown
	Revoked     int64 `json:"revoked"`        // when the machine revoked the grant
	Unusable    int64 `json:"gone"`           // when the grant became unusable: every page landed, it was revoked, or its node died
	Pages       []int `json:"pages"`
	Refs        []int `json:"refs,omitempty"`
}

// A Command is a command of an engine.
type Command struct {
	Ticket    uint64 `json:"ticket"`
	Node      int    `json:"node"`
	Kind      string `json:"want"`
	Given     int64  `json:"given"`
	Delivered int64  `json:"delivered"`
	Returned  int64  `json:"returned"` // when memory that was held beyond the outcome was returned; Never otherwise
	Code      string `json:"code,omitempty"`
	Refs      []int  `json:"refs,omitempty"`
}

// A Page holds the states of a page over time, without the periods in which the page is free. See PageStates for the
// states.
type Page struct {
	Node  int    `json:"node"`
	Index int    `json:"index"`
	Ref   int    `json:"ref"`
	Spans []Span `json:"spans"`
}

// A Violation describes the property that was violated.
type Violation struct {
	At       int64    `json:"at"`
	Property string   `json:"property"`
	Promise  string   `json:"promise"` // the text of the property
	Story    string   `json:"story"`   // what happened instead
	Concerns []int    `json:"concerns"`
	Steps    []int    `json:"steps"` // indexes in Events of the last events that touched the things in Concerns
	Stack    string   `json:"stack,omitempty"`
	Nodes    []int    `json:"nodes"`
	Keys     []string `json:"keys,omitempty"` // the keys concerned, in full
}
