// Package gateway lets a rank exchange KV cache with plain engines. A plain engine does not speak kvferry's protocol:
// for example vLLM with its unmodified NIXL push connector. The gateway translates in both directions. To the rank,
// each rank of a plain engine looks like a kvferry peer; to the plain engine, this node looks like a rank of vLLM. So
// package fsm/rank/flows/register needs no special case for plain engines: the gateway supplies the fields that a plain
// engine cannot send, such as incarnations, operation numbers and leases.
//
// A driver owns one [Gateway]. It passes to the gateway the effects of the rank that concern plain engines (the methods
// HandleX), and the events of NIXL agents and side channels (the methods OnX). Each method appends to an [Effects] what
// the driver must do next.
//
// Terms:
//
//   - Agent: an endpoint of libnixl. An engine that holds an agent's metadata can write to the agent's memory.
//
//   - Notification: a message from one agent to another.
//
//   - Side channel: the socket on which a vLLM rank answers queries for the metadata of its agent. The agents of this node
//     that engines may write to have side channels too, and so has the front.
//
//   - Producer: a plain engine that writes to this node. The rank registers blocks with it.
//
//   - Consumer: a plain engine that this node writes to. It registers blocks with the rank.
//
//     rank                gateway                              plain engine
//
//     Producer:
//     hello ------------> query to the side channel --------->  metadata: geometry, agent
//     PUSH_REG ---------> notification PUSH_REG, sent once -->  writes the blocks
//     <----- end - <---- notification <id>:<ranks>, by the rank with which the blocks were registered
//     PUSH_KEEP --------> notification HB
//     PUSH_OFF ---------> no such message exists: the gateway destroys the agent that the engine knows, as soon as no
//     other registration needs that agent
//
//     Consumer:
//     <--- hello - <---- notification PUSH_REG; the gateway first queries the side channel that it names, once
//     <- PUSH_REG- the same registration, for the last blocks of the request: a plain engine states no positions
//     end of the write -> notification <id>:<ranks>, if everything was written
//     <-PUSH_KEEP- <---- notification HB
//
// # Which engines may write, and what ends their access
//
// An engine that was given an agent's metadata may write to the memory of that agent for as long as the agent exists.
// Therefore each engine that writes to this node has an agent of its own, with its own engine name and side channel,
// and the end of that agent is the proof that this engine writes nothing any more (M4). A withdrawn registration
// retires its agent: later registrations use another agent, and when all registrations of the retired agent have ended,
// it is destroyed. A revoked grant (Expel) destroys all agents of that engine at once, and ends the other registrations
// that used them.
//
// A registration is sent once to each of a producer's ranks, however often the rank here repeats it, because a second
// registration would cause a second write. Completions count by the rank that sent them, and only under the name that
// was registered there.
//
// The front is the agent to which engines send registrations. The front describes memory that nothing depends on,
// because an engine must receive some metadata before sending heartbeats. Each engine that this node writes to has a
// writer, an agent of its own, which ends with that engine.
//
// A plain engine cannot be notified of a failure: its request waits until the engine's router gives it up. Failures are
// reported to people in Effects.Reports.
//
// # Example
//
// A decode of kvferry registers blocks with a plain prefill: the rank opens a connection to the prefill's address
// ([PlainRank]) and sends a hello. The gateway queries the prefill's side channel, makes an agent, has the agent load
// the prefill's metadata and answers the hello. The rank sends PUSH_REG; the gateway forwards it as a notification
// that names the agent. The prefill queries the side channel of that agent (AnswerQuery), writes the blocks and sends a
// completion notification to that agent, and the gateway answers PUSH_REG with OK.
package gateway
