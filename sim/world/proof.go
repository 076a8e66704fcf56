package world

import (
	"github.com/kvferry/kvferry/effects"
	"github.com/kvferry/kvferry/sim/draw"
)

// A Proof is what a process proves on its connections: its identity, the roles and the tenants that the policy gives to
// that identity, and its trust domain. The zero value proves nothing, and has all tenants.
type Proof struct {
	Principal effects.Principal
	Roles     effects.Roles
	Tenants   *effects.Tenants `snap:"share"`
	Realm     effects.Realm    // zero: the domain of the nodes
}

// realmOfStranger returns the trust domain of a stranger that does not act as a node. Where the nodes tell domains apart,
// the first identity is of the nodes' domain, and each of the others is of a domain of its own.
func (w *World) realmOfStranger(s StrangerProof) effects.Realm {
	switch {
	case !w.SourcePlan.Topology.Domains || s == 1:
		return 0
	case s == 0:
		return effects.RealmUnproven
	}
	return effects.Realm(draw.Mix(0xD0A1, uint64(s)) | 2)
}

// TenantOf returns a tenant, by its number in plans.
func TenantOf(number uint32) effects.Tenant {
	if number == 0 {
		return 0
	}
	return effects.Tenant(draw.Mix(0x7E4A47, uint64(number)) | 1)
}

// strangerTenant is the number of a tenant of which no node has chunks.
const strangerTenant = 99

// tenantsOfStranger returns the tenants that the policy gives to a stranger with an identity of its own.
func (w *World) tenantsOfStranger(s StrangerProof) *effects.Tenants {
	if len(w.SourcePlan.Topology.Tenants) == 0 {
		return nil
	}
	switch d := draw.Hash(w.Seed, draw.Noise, 8, uint64(s)); d.Below(6) {
	case 0:
		return nil
	case 1:
		return effects.NewTenants(0)
	case 2:
		return effects.NewTenants(0, TenantOf(1+uint32(d.Rehash().Below(3))))
	case 3:
		return effects.NewTenants()
	}
	return effects.NewTenants(TenantOf(strangerTenant))
}

// PrincipalOf returns the principal of an identity, by its number in plans.
func PrincipalOf(identity uint32) effects.Principal {
	return effects.Principal(draw.Mix(0x1DE417177, uint64(identity)) | 1)
}

// Forbidden says that a message must change nothing, because its sender lacks the role for it, sent it in the name of
// another identity, or names chunks of a tenant that it or the receiver lacks. Oracles are then told of a tick in
// place of the message, and of no reply to it, because they know senders by the names in messages. [ForbiddenMessage]
// and [ForbiddenEnded] report the message to the oracle that judges such messages.
type Forbidden struct {
	Is       bool
	Kind     ForbiddenKind
	IsCoded  bool                // the reply must state a code
	MayBeOld bool                // the code may be Stale, because the machine does not know the names any more
	Hidden   effects.Incarnation // the name of the node that the reply must not tell; zero: none
}

// ForbiddenKind is the reason for which a message is forbidden.
type ForbiddenKind uint8

// The reasons.
const (
	NoRole        ForbiddenKind = iota // the sender's identity lacks the role
	OtherIdentity                      // the message states the names of a peer with another identity
	OtherHello                         // a hello states the name of a peer with another identity
	OtherTenant                        // the sender or the receiver lacks the tenant of a key
)

// A StrangerProof is the number of a Proof of strangers. 0 is the Proof of a stranger without an identity.
type StrangerProof uint8

// strangerProofs are the Proofs of strangers that have an identity of their own, by number. The roles of such a
// stranger are those that it needs, or others: the policy of a deployment has many identities.
//
//kvferry:table
var strangerProofs = [...]effects.Roles{
	0,
	effects.RolePrefill | effects.RoleDecode,
	effects.RolePrefill,
	effects.RoleDecode,
	effects.RoleDirectory,
	effects.RoleProxy | effects.RoleOperator,
	0,
}

// FirstNodeProof is the number of the Proof of node 0. The following nodes follow: a node that was broken into acts as
// a stranger.
const FirstNodeProof = StrangerProof(len(strangerProofs))

// strangerIdentity is above the identities of all nodes.
const strangerIdentity = 1 << 20

// ProofOf returns the Proof of a stranger.
func (w *World) ProofOf(s StrangerProof) Proof {
	switch {
	case s == 0:
		return Proof{Realm: w.realmOfStranger(s)}
	case s >= FirstNodeProof:
		return w.Nodes[s-FirstNodeProof].Proof
	}
	return Proof{PrincipalOf(strangerIdentity + uint32(s)), strangerProofs[s], w.tenantsOfStranger(s), w.realmOfStranger(s)}
}

// IsPrincipalOfNodes reports whether a principal is of the nodes' trust domain.
func (w *World) IsPrincipalOfNodes(p effects.Principal) bool {
	for s := StrangerProof(0); s < FirstNodeProof; s++ {
		if x := w.ProofOf(s); x.Principal == p {
			return x.Realm == 0
		}
	}
	return true
}

// proofShift is the number of bits by which the id of a stranger's connection holds the number of its Proof.
const proofShift = 40

// StrangerConn returns the id of a connection of a stranger, which is no connection of the world. The id names what the
// stranger proves. The number of a connection distinguishes the connections.
func StrangerConn(s StrangerProof, number uint64) uint64 {
	return 1<<50 | uint64(s)<<proofShift | number
}

// ClientProof returns what the client of a connection proves, given the id by which its server knows the connection.
func (w *World) ClientProof(serverConn uint64) Proof {
	if IsNoiseConn(serverConn) {
		return w.ProofOf(StrangerProof(serverConn >> proofShift))
	}
	if kind := serverConn >> 40; kind == 1 || kind == 2 {
		switch c := w.ConnOf(ClientConnID(serverConn)); {
		case c == nil || c.Client < 0:
		case w.Nodes[c.Client].Custom: // Its next incarnation may prove something else.
			return c.Proves
		default:
			proof := w.Nodes[c.Client].Proof
			if w.Nodes[c.Client].IsForbidden(w.Now) {
				proof.Roles = 0
			}
			return proof
		}
	}
	return Proof{}
}

// IsForbidden reports whether the policy gives a node no role at a time.
func (n *Node) IsForbidden(at int64) bool { return n.ForbiddenFrom <= at && at < n.ForbiddenUntil }

// ServerProof returns what the server of a connection proves.
func (w *World) ServerProof(c *Conn) Proof {
	if c.Server >= 0 && int(c.Server) < len(w.Nodes) {
		return w.Nodes[c.Server].Proof
	}
	return Proof{}
}

// DrawStrangerProof draws what a stranger proves: nothing if security is off; an identity of its own with the roles
// that it needs or others; the identity of a node; or, unless the plan is strict, nothing.
func (w *World) DrawStrangerProof(d draw.Value) StrangerProof {
	t := &w.SourcePlan.Topology
	if len(t.Identities) == 0 {
		return 0
	}
	switch k := d.Below(1000); {
	case k < 250 && !t.Strict:
		return 0
	case k < 500:
		return 1 // has both roles of engines
	case k < 700:
		return FirstNodeProof + StrangerProof(d.Rehash().Below(uint64(len(t.Identities))))
	}
	return 2 + StrangerProof(d.Rehash().Below(uint64(len(strangerProofs)-2)))
}
