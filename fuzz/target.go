package fuzz

import (
	"slices"
	"testing"

	"github.com/kvferry/kvferry/protocol"
)

// A Target is a function that reads bytes from outside, with the check of what must hold for any bytes. Use a Target in
// a native fuzz function, or pass inputs from another fuzzer to a Check of the Target.
type Target struct {
	name  string
	begin func() Check
	tags  []protocol.Tag  // of the messages that the target reads, if the target reads nothing else
	seeds func() [][]byte // returns the seeds, if the seeds do not follow from tags
}

// A Check decodes an input and returns an error if a property does not hold. It keeps a receiver between inputs, as a
// node does, and therefore belongs to a single goroutine. A Check does not recover from a panic of the code under test.
type Check func(b []byte) error

// Name returns the target's name. The name of our fuzz function for the target is Fuzz and this name.
func (t Target) Name() string { return t.name }

// Begin returns a new Check.
func (t Target) Begin() Check { return t.begin() }

// Fuzz adds the seeds and runs the target. Call Fuzz as the body of a native fuzz function:
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

// Targets returns all targets, by name.
func Targets() []Target { return slices.Clone(allTargets) }

var allTargets = []Target{
	AgentAttach, AgentCall, AgentFrames, AllocRequest, AllocResponse, CacheQueryRequest, CacheQueryResponse,
	ControllerControl, ControllerFeed, ControllerJSON, ControllerLookup, ControllerSync, ControllerWorkers,
	EndRequest, EndResponse, Endpoint, HixlInitRequest,
	HixlInitResponse, HixlMemInfoRequest, HixlMemInfoResponse, HixlReadyRequest, HixlReadyResponse, Key, Memory,
	Nixl, P2PDone, P2PGet, P2POther, PeekTag, ProxyNotif, PullDoneSignal, PullID, PullReadyDoneAck, PullReadyNotif,
	RenewRequest, RenewResponse, SharedLog,
}

// statelessTarget returns the target of a check that keeps nothing between inputs. derive returns the seeds.
func statelessTarget(name string, check Check, derive func() [][]byte) Target {
	return Target{name: name, seeds: derive, begin: func() Check { return check }}
}
