package effects

import "strings"

// Roles is a set of roles. The policy of a deployment gives roles to the identities that peers prove; the roles of a
// peer say which messages a machine takes from the peer.
type Roles uint8

// The roles.
const (
	// RolePrefill sends chunks to decode nodes, and reads the chunks that peers share.
	RolePrefill Roles = 1 << iota
	// RoleDecode receives chunks, and reads the chunks that peers share.
	RoleDecode
	// RoleDirectory answers where chunks are, and replicates with other directories.
	RoleDirectory
	// RoleProxy passes requests to engines, and is notified when the chunks of a request have arrived.
	RoleProxy
	// RoleOperator reads the state of processes and changes settings.
	RoleOperator

	// AllRoles is the set of all roles, for peers that nobody authenticated because security is off.
	AllRoles Roles = 1<<iota - 1
)

// roleNames are the names of the roles, in the order of the bits.
//
//kvferry:table
var roleNames = [...]string{"prefill", "decode", "directory", "proxy", "operator"}

// Has reports whether the set has at least one of the given roles.
func (r Roles) Has(oneOf Roles) bool { return r&oneOf != 0 }

// String returns the names, joined by commas, or "none".
func (r Roles) String() string {
	var names []string
	for i, name := range roleNames {
		if r&(1<<i) != 0 {
			names = append(names, name)
		}
	}
	if len(names) == 0 {
		return "none"
	}
	return strings.Join(names, ",")
}

// RoleNamed returns the role whose name is given, and reports false if there is none.
func RoleNamed(name string) (Roles, bool) {
	for i, n := range roleNames {
		if n == name {
			return 1 << i, true
		}
	}
	return 0, false
}

// RoleNames returns the names of all roles, joined by commas, for messages to users.
func RoleNames() string { return strings.Join(roleNames[:], ", ") }

// Principal names the authenticated identity of a peer: a hash of the name in the peer's certificate, which is the same
// in all processes. Zero means that the peer proved no identity.
//
// Several processes may prove the same identity, for example all replicas of a deployment. One process proves the same
// identity as a client and as a server.
type Principal uint64

// MayActFor reports whether a message of the sender p may be taken as a message of a peer that is known by the identity
// known. A peer that has proved no identity may prove one later; a peer that has proved one must prove it every time.
func (p Principal) MayActFor(known Principal) bool { return known == 0 || known == p }
