// Package gateway simulates a node of kvferry between plain engines: engines that speak vLLM's NIXL push protocol and
// know nothing of kvferry. The node is a rank, the gateway of package fsm/gateway, and a model of what the driver does
// around them: agents of libnixl that take time to make, load and destroy, and may fail. The plain engines are producers,
// which write into the node's blocks, and consumers, into whose blocks the node writes. An engine has one or several ranks,
// each with an agent. Every process may crash, freeze or be cut off, and an engine may behave oddly for some time.
//
// Bytes are texts: each page holds the text that was stored last, which names a request, a layer and a position. So the
// oracles can tell whose bytes a page has. The model checks each store and each read of a page when it happens, and
// reports the result as a fact; the oracles judge the facts.
//
// Example: the node registers blocks 2 and 3 for request r4 with producer p0. The gateway makes an agent, and p0 learns
// its name over a side channel. p0 crashes, and its next incarnation knows nothing of r4. The registration expires, the
// gateway destroys the agent, and only then the node's engine has its blocks back. A write of p0 that the network
// delayed until then names an agent that does not exist any more, and is refused.
package gateway
