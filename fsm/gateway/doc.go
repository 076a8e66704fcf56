// Package gateway translates between a rank and plain engines: engines that do not speak kvferry's protocol, such as
// vLLM with its unmodified NIXL push connector. To the rank, each rank of such an engine looks like a peer of kvferry;
// to the engine, the rank looks like a rank of vLLM. Therefore fsm/rank/flows/register and its promises stay as they
// are, and the gateway supplies what a plain engine cannot say.
//
// A driver owns one [Gateway], passes it the rank's effects that concern plain engines and what happens at the NIXL
// agents, and carries out what the methods append to an [Effects]. Events in Out go to the rank. A note below is a
// notification of NIXL; a side channel is the socket on which a vLLM rank answers queries for its metadata.
//
//	rank                gateway                          plain engine
//	hello  ------------> queries the side channel ------> its metadata: geometry, agent
//	PUSH_REG ----------> note PUSH_REG, once -----------> writes
//	       <----- end -- <----------------- note <id>:<ranks>, of that very rank
//	PUSH_KEEP ---------> note HB
//	PUSH_OFF ----------> there is no message for this: the agent that the engine knows is destroyed, as soon as no
//	                     other registration needs it
//
//	       <---- hello - <------------------- note PUSH_REG: the gateway queries the side channel it names, once
//	       <- PUSH_REG - the same, for the last blocks of the request: such an engine states no positions
//	end of a write ----> note <id>:<ranks>, if everything was written
//	       <- PUSH_KEEP- <------------------- note HB
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
// the prefill's metadata and answers the hello. The rank sends PUSH_REG; the gateway forwards it as a note that names
// the agent. The prefill queries the side channel of that agent (Serve), writes the blocks and sends a completion note
// to that agent, and the gateway answers PUSH_REG with OK.
package gateway
