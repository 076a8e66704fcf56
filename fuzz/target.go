package fuzz

import (
	"slices"
	"testing"

	"github.com/kvferry/kvferry/protocol"
)

// A Target is one reader of bytes from outside, and what must hold of it whatever the bytes are.
// Use it under a native fuzz function, or give it bytes from any other fuzzer.
type Target struct {
	name   string
	begin  func() Check
	tags   []protocol.Tag  // of the messages that it reads, if that is all that it reads
	derive func() [][]byte // its seeds, where they do not follow from tags
}

// A Check is given one input and says what it breaks, or nil. It keeps a receiver from input to
// input, as a node does, and so belongs to one goroutine. A panic of the code under test is not caught.
type Check func(b []byte) error

// Name is the target's name. Our own fuzz function has it with Fuzz before it.
func (t Target) Name() string { return t.name }

// Begin gives a new Check.
func (t Target) Begin() Check { return t.begin() }

// Fuzz adds the seeds and runs the target. It is the body of a native fuzz function:
//
//	func FuzzAllocRequest(f *testing.F) { fuzz.AllocRequest.Fuzz(f) }
func (t Target) Fuzz(f *testing.F) {
	f.Helper()
	for _, seed := range t.Seeds() {
		f.Add(seed)
	}
	check := t.begin()
	f.Fuzz(func(ft *testing.T, b []byte) {
		if err := check(b); err != nil {
			ft.Fatal(err)
		}
	})
}

// Targets is all of them, by name.
func Targets() []Target { return slices.Clone(all) }

var all = []Target{
	AgentAttach, AgentCall, AgentFrames, AllocRequest, AllocResponse, CacheQueryRequest, CacheQueryResponse,
	ControllerControl, ControllerFeed, ControllerJSON, ControllerLookup, ControllerSync, ControllerWorkers,
	DifferentialAllocRequest, DifferentialAllocResponse, DifferentialCacheQueryRequest,
	DifferentialCacheQueryResponse, DifferentialControllerFeed, DifferentialEndRequest, DifferentialP2PGet,
	DifferentialP2PGetReply, DifferentialPullDoneSignal, DifferentialPullReadyDoneAck, DifferentialPullReadyNotif,
	DifferentialRenewRequest, DifferentialRenewResponse, EndRequest, EndResponse, Endpoint, HixlInitRequest,
	HixlInitResponse, HixlMemInfoRequest, HixlMemInfoResponse, HixlReadyRequest, HixlReadyResponse, Key, Memory,
	Nixl, P2PDone, P2PGet, P2POther, PeekTag, ProxyNotif, PullDoneSignal, PullID, PullReadyDoneAck, PullReadyNotif,
	RenewRequest, RenewResponse, SharedLog,
}

// stateless makes a target of a check that keeps nothing, and of the function that derives its seeds.
func stateless(name string, check Check, derive func() [][]byte) Target {
	return Target{name: name, derive: derive, begin: func() Check { return check }}
}
