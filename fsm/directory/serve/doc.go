// Package serve is a directory as a machine: it reads the messages that workers send to LMCache's controller, tells
// package directory the facts in them, and writes the answers. It decides nothing else.
//
// It listens on three channels. Questions come on [effects.ChannelDirectory]: registrations, lookups, and how a full
// sync begins and goes. What nobody answers comes on [effects.ChannelFeed]: operations, batches and ends of full syncs,
// deregistrations. [effects.ChannelHeartbeat] is for heartbeats, which the first one takes as well. It opens no
// connection and sends nothing that was not asked for.
//
// A caller may rely on this, beside what package directory says:
//
//   - Each question is answered in the step that hears it: what is no message, what belongs elsewhere and what is
//     refused by an ErrorMsg, a full sync that is refused by its own answer. What comes on the feed and is refused is
//     dropped. Both are told by a [effects.FactMalformed] with its reason, and change nothing.
//   - What one connection says makes no more workers known than the configuration has for one source.
//   - A first answer to a lookup is LMCache's; more peers may follow it. A miss is LMCache's, too.
//   - What the directory has to say is told by a [effects.FactDirectory] each.
//   - Time in which it was asleep, because its process was stopped, is no worker's silence. A driver that steps it at
//     its deadlines lets it know when it was awake.
//
// LMCache's workers send no heartbeats unless they are told to, and nothing else while nothing happens: a fleet of such
// wants a Silence of zero, or those without news are forgotten. Of an operation that LMCache tells of by itself, in a
// KVAdmitMsg or KVEvictMsg, the number 0 may be none; so it is taken for none.
package serve
