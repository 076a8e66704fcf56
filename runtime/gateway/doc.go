// Package gateway connects a node to engines of vLLM that run the unmodified NIXL push connector and know nothing of
// kvferry ("plain" engines). Through the gateway a node registers its blocks with a plain engine, which then writes
// into these blocks, and the node writes into blocks that a plain engine registered. The package is the driver of the
// machine fsm/gateway, which decides everything.
//
// A plain engine communicates in two ways: over a side channel on ZeroMQ, where the engine answers requests for the
// layout of its memory, and by notes between agents of libnixl. Data moves through the same agents.
//
// A Gateway is a control transport and a data plane of a node at once:
//
//	g, err := gateway.New(gateway.Config{…})
//	node, err := runtime.Open(ctx, cfg, runtime.WithControl(g.WrapControl(zmq.Config{}.Opener())), runtime.WithGateway(g), …)
//
// A message to an address of [ProducerAddr] goes to the machine; every other message goes to the control transport that
// the gateway wraps. The machine has a goroutine, and each agent has a separate goroutine; the side channels are
// control transports.
//
// # How long an engine may write
//
// As on every leased plane, the owner of the memory cannot observe what an engine's hardware stores (rule M4 in
// docs/safety.md). A registration names an agent of this gateway, and the engine may write for as long as that agent
// exists; the end of the agent is the proof that the engine cannot write any more. With cross-memory attach there would
// be no proof, because then the engine's own process stores. Therefore agents to which engines write never allow
// cross-memory attach (gateway.transports), and New refuses to run with UCX_TLS set, which would override that setting.
//
// # Trust
//
// libnixl believes the metadata of the agents that are loaded. The metadata come from side channels that registrations
// name, and any process that reaches the front can send a registration: let only engines reach it. A process that
// reaches an agent over UCX's tcp can read and write all memory of the agents' process (Config.Agents), which includes
// the pool, so a gateway that other hosts reach needs Config.TrustedNetwork.
package gateway
