package config

import (
	"time"
)

// Gateway has the parameters of a gateway to vLLM engines that do not know kvferry (runtime/gateway), in a program that
// opens a gateway. Without register.engine_id and transfer_channel nixl, the fields have no effect.
type Gateway struct {
	// Transports names the transport that UCX may use, in the form of UCX_TLS: tcp or ^cma.
	Transports string
	// RegistrationTimeout limits the time for which a registration of an engine waits for the request.
	RegistrationTimeout time.Duration
	// SideTimeout limits the time that a side channel may take to reply. Engines wait 5 s for a reply.
	SideTimeout time.Duration
	// StallTimeout is the longest time during which no batch to an engine may complete. Then the gateway gives up the
	// engine's agent.
	StallTimeout time.Duration
	// EnginesMax is the maximum number of engines in each direction; each has an agent with 15 open files.
	// RegistrationsMax is the maximum number of this gateway's registrations at engines that are in progress, and
	// PendingMax the maximum number of pending registrations of engines at this gateway.
	EnginesMax, RegistrationsMax, PendingMax uint32
	// AgentsMax is the maximum number of agents to which an engine may write: the current agent, and agents with
	// revoked registrations. Attempts limits the number of times that the gateway requests an engine's identity, and
	// sends a registration to the engine.
	AgentsMax, Attempts uint32
	// Window is the maximum number of registrations that this gateway has at a rank of an engine at the same time.
	Window uint32
}

// gatewayKeys are kvferry's own keys for a gateway, below extra_config.kvferry like nodeKeys.
var gatewayKeys = []key{
	{name: "gateway.transports", kind: wordKind(func(d *draft) *string { return &d.cfg.Gateway.Transports },
		[]choice[string]{{"^cma", "^cma"}, {"tcp", "tcp"}}, 0, nil), def: "^cma",
		doc: "the transport that UCX may use, in the form of `UCX_TLS`; with any other transport an engine on this host " +
			"could write into this node's memory by itself, and nothing could stop it"},
	{name: "gateway.registration_timeout",
		kind: durationKind(time.Second, 24*time.Hour, func(d *draft) *time.Duration { return &d.cfg.Gateway.RegistrationTimeout }),
		def:  "480", doc: "how long a registration of an engine waits for its request to be finished"},
	{name: "gateway.side_timeout",
		kind: durationKind(time.Millisecond, time.Hour, func(d *draft) *time.Duration { return &d.cfg.Gateway.SideTimeout }),
		def:  "5", doc: "how long an engine's side channel may take to reply"},
	{name: "gateway.stall_timeout",
		kind: durationKind(time.Millisecond, time.Hour, func(d *draft) *time.Duration { return &d.cfg.Gateway.StallTimeout }),
		def:  "10", doc: "the longest time without a completed batch to an engine; then the gateway gives up the engine's " +
			"agent"},
	{name: "gateway.engines", kind: integerKind(1, 1024, func(d *draft) *uint32 { return &d.cfg.Gateway.EnginesMax }),
		def: "16", doc: "the maximum number of engines in each direction; each has an agent with 15 open files"},
	{name: "gateway.asks", kind: integerKind(1, 1<<16, func(d *draft) *uint32 { return &d.cfg.Gateway.RegistrationsMax }),
		def: "1024", doc: "the maximum number of this gateway's registrations at engines in progress"},
	{name: "gateway.waiting", kind: integerKind(1, 1<<16, func(d *draft) *uint32 { return &d.cfg.Gateway.PendingMax }),
		def: "1024", doc: "the maximum number of registrations of engines that wait for their requests"},
	{name: "gateway.agents", kind: integerKind(1, 1024, func(d *draft) *uint32 { return &d.cfg.Gateway.AgentsMax }),
		def: "4", doc: "the maximum number of agents that one engine may write to: the current agent, and agents with " +
			"revoked registrations"},
	{name: "gateway.tries", kind: integerKind(1, 100, func(d *draft) *uint32 { return &d.cfg.Gateway.Attempts }),
		def: "3", doc: "how many times the gateway requests an engine's identity, and sends a registration to the engine"},
	{name: "gateway.window", kind: integerKind(1, 1<<15, func(d *draft) *uint32 { return &d.cfg.Gateway.Window }),
		def: "256", doc: "the maximum number of this gateway's registrations at one rank of an engine at the same time"},
}

// validateGateway adds notes to the keys of a gateway on a node that cannot have a gateway.
func (d *draft) validateGateway() {
	if c := &d.cfg; !c.Register.Enabled || c.Channel != ChannelNIXL {
		d.noteUnused(gatewayKeys, "gateway.", "there is no gateway without register.engine_id and transfer_channel: nixl")
	}
}
