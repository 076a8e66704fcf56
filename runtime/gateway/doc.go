// Package gateway carries out fsm/gateway: it lets a node register blocks with engines of vLLM, and write into theirs,
// that run its NIXL push connector as it is and know nothing of kvferry. Such an engine speaks by two ways: a side
// channel over ZMQ, where it is asked what its memory is like, and notes between agents of libnixl, by which its memory
// is reached too.
//
// A Gateway is a node's control transport and one of its data planes at once:
//
//	g, err := gateway.New(gateway.Config{…})
//	node, err := runtime.Open(ctx, cfg, runtime.WithControl(g.Control(zmq.Config{}.Opener())), runtime.WithGateway(g), …)
//
// What is sent to an address of [Producer] goes to the machine, all else to the control transport that it stands
// before. The machine has a goroutine of its own, and each agent one; the side channels are control transports.
//
// # Who may write until when
//
// As of every leased plane: nobody can watch what an engine's hardware stores. An engine that we registered with may
// write for as long as the agent lives that it was told of, and that agent's end is the proof. Over cross-memory attach
// it would be none, as the engine's process stores by itself; so agents that may be written to never allow it
// (gateway.transports), and a UCX_TLS that would go before that is refused.
//
// # Trust
//
// libnixl believes the metadata of agents that it loads. They come from side channels that registrations name, of
// engines or of whoever reaches the front: let only engines reach that. A process that reaches an agent over UCX's tcp
// reads and writes all memory of ours, so a gateway that other hosts reach needs Config.TrustedNetwork.
package gateway
