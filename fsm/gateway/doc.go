// Package gateway stands between a rank and engines that do not speak its words: plain ones, with vLLM's NIXL push
// connector as it is. To the rank each rank of such an engine looks like a peer of its own kind; to the engine the rank
// looks like one of vLLM's. So fsm/rank/flows/register, and what it promises, stay as they are, and what a plain engine
// cannot say is made up for here.
//
//	rank                gateway                          plain engine
//	hello  ------------> asks the side channel ---------> its metadata: geometry, agent
//	PUSH_REG ----------> note PUSH_REG, once -----------> writes
//	       <----- end -- <----------------- note <id>:<ranks>, of that very rank
//	PUSH_KEEP ---------> note HB
//	PUSH_OFF ----------> nothing can be said: the agent it was told of is destroyed, as soon as nobody else needs it
//
//	       <---- hello - <------------------- note PUSH_REG: asks the side channel that this names, once
//	       <- PUSH_REG - the same, of the last blocks of the request: such an engine says no positions
//	end of a write ----> note <id>:<ranks>, if all was written
//	       <- PUSH_KEEP- <------------------- note HB
//
// # What may write, and what ends it
//
// Whoever was given an agent's metadata may write to its memory for as long as the agent lives. So engines that write
// to us have an agent each, with an engine's name and a side channel of its own, and its end is the proof that nothing
// of them is written any more. A withdrawn registration retires its agent: those that come later use another one, and
// when all of the retired one's have ended, it is destroyed. A grant that is taken back (Expel) destroys all of that
// engine's agents at once, and ends what else was under way by them.
//
// A registration is told once for each of a producer's ranks, whatever the rank here asks again: a second one would be
// a second write. Completions count by the rank that sent them, and only under the name that was registered there.
//
// The front is the agent to which engines send registrations. It tells of memory that nobody misses, as an engine wants
// to hear of some before it sends heartbeats. Each engine that we write to has a writer, an agent of its own, which
// ends with it.
//
// Towards a plain engine there is no word for a failure: its request waits until its router gives it up. What is told
// to people is in Out.Notes.
package gateway
