// Package gateway connects a node to engines of vLLM that run the unmodified NIXL push connector and know nothing of
// kvferry ("plain" engines). Through it a node registers its blocks with such an engine, which then writes into them,
// and writes into blocks that such an engine registered. It is the driver of the machine fsm/gateway, which decides
// everything.
//
// A plain engine communicates in two ways: over a side channel on ZeroMQ, where it answers requests for the layout of
// its memory, and by notes between agents of libnixl, through which its memory is reached, too.
//
// A Gateway is a node's control transport and one of its data planes at once:
//
//	g, err := gateway.New(gateway.Config{…})
//	node, err := runtime.Open(ctx, cfg, runtime.WithControl(g.Control(zmq.Config{}.Opener())), runtime.WithGateway(g), …)
//
// A message to an address of [Producer] goes to the machine; every other message goes to the control transport that the
// gateway wraps. The machine has one goroutine and each agent another one; the side channels are control transports.
//
// # Who may write until when
//
// As on every leased plane, nobody can observe what an engine's hardware stores (rule M4 in docs/safety.md). An engine
// that we registered with may write for as long as the agent of ours lives that the registration named; the end of that
// agent is the proof that it cannot write any more. With cross-memory attach it would be no proof, because there the
// engine's own process stores. Therefore agents that may be written to never allow it (gateway.transports), and New
// refuses to run with UCX_TLS set, which would override that.
//
// # Trust
//
// libnixl believes the metadata of the agents that it loads. The metadata come from side channels that registrations
// name, and any process that reaches the front can send a registration: let only engines reach it. A process that
// reaches an agent over UCX's tcp can read and write all memory of this process, so a gateway that other hosts reach
// needs Config.TrustedNetwork.
package gateway
