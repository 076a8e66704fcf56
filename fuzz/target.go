package fuzz

import (
	"slices"
	"testing"
)

// A Target is one reader of bytes from outside, and what must hold of it whatever the bytes are.
// Use it under a native fuzz function, or give it bytes from any other fuzzer.
type Target struct {
	name  string
	begin func() Check
}

// A Check is given one input and says what it breaks, or nil. It keeps a receiver from input to
// input, as a node does, and so belongs to one goroutine. A panic of the code under test is not caught.
type Check func(b []byte) error

// Name is the target's name: with Fuzz before it that of our own fuzz function, and alone that of its folder of seeds.
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

// stateless makes a target of a check that keeps nothing.
func stateless(name string, check Check) Target {
	return Target{name: name, begin: func() Check { return check }}
}
