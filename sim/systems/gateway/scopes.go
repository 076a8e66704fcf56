package gateway

import (
	"github.com/kvferry/kvferry/sim/explore"
	"github.com/kvferry/kvferry/sim/plan"
)

// A smallWorld is a scope of the system with its shape. The shape is not stated by items, because each item is a command
// whose place among the others would be tried too.
type smallWorld struct {
	explore.Scope
	producerRanks, consumerRanks uint32
}

// smallWorlds returns the small worlds: one request that the node receives, or one that it lends.
func smallWorlds() []smallWorld {
	receive := []plan.Item{{Do: "receive", Node: hostNode, Number: 2}, {Do: "compute", Node: firstProducer, Number: 2}}
	lend := []plan.Item{{Do: "lend", Node: hostNode, Number: 2}, {Do: "want", Node: firstConsumer, Number: 2}}
	lost := []plan.Fault{plan.FaultRequestLost, plan.FaultReplyLost}
	return []smallWorld{
		{Scope: explore.Scope{Name: "gateway-receive", Description: "a plain producer writes one request into the node", Items: receive}},
		{Scope: explore.Scope{Name: "gateway-lend", Description: "the node writes one request into a plain consumer", Items: lend}},
		{Scope: explore.Scope{Name: "gateway-receive-lost", Description: "as gateway-receive, and a message or its acceptance is lost",
			Items: receive, Faults: 1, DrawnFaults: lost}},
		{Scope: explore.Scope{Name: "gateway-lend-lost", Description: "as gateway-lend, and a message or its acceptance is lost",
			Items: lend, Faults: 1, DrawnFaults: lost}},
		{Scope: explore.Scope{Name: "gateway-receive-crash", Description: "as gateway-receive, and the producer crashes at any moment",
			Items: receive, Faults: 1, CrashProcesses: producers[:1]}},
		{Scope: explore.Scope{Name: "gateway-lend-crash", Description: "as gateway-lend, and the consumer crashes at any moment",
			Items: lend, Faults: 1, CrashProcesses: consumers[:1]}},
		{Scope: explore.Scope{Name: "gateway-receive-restart", Description: "as gateway-receive, and the node crashes at any moment",
			Items: receive, Faults: 1, CrashProcesses: []string{hostName}}},
		{Scope: explore.Scope{Name: "gateway-lend-restart", Description: "as gateway-lend, and the node crashes at any moment",
			Items: lend, Faults: 1, CrashProcesses: []string{hostName}}},
		{Scope: explore.Scope{Name: "gateway-receive-ranks-lost",
			Description: "as gateway-receive-ranks, and a message or its acceptance is lost", Items: receive,
			Faults: 1, DrawnFaults: lost}, producerRanks: 2},
		{Scope: explore.Scope{Name: "gateway-receive-ranks", Description: "two ranks of a plain producer write for one head", Items: receive},
			producerRanks: 2},
		{Scope: explore.Scope{Name: "gateway-lend-ranks", Description: "the node writes one request into two ranks of a plain consumer",
			Items: lend}, consumerRanks: 2},
	}
}

// Scopes returns the small worlds of the system.
func Scopes() (all []explore.Scope) {
	for _, w := range smallWorlds() {
		all = append(all, w.Scope)
	}
	return all
}

// worldOf returns the small world of a plan, or nil.
func worldOf(p *plan.Plan) *smallWorld {
	for _, w := range smallWorlds() {
		if w.Name == p.Profile {
			return &w
		}
	}
	return nil
}
