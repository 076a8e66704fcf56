package world

// roles are the roles of a node. A machine may have several.
type roles uint8

const (
	RoleSender   roles = 1 << iota // chunks leave its pages
	RoleReceiver                   // chunks come into its pages, and are kept for requests
	roleCount
)

// IsSender reports whether peers request or receive chunks from n.
func (n *Node) IsSender() bool { return n.Roles&RoleSender != 0 }

// IsReceiver reports whether peers send chunks to n, or offer chunks to n.
func (n *Node) IsReceiver() bool { return n.Roles&RoleReceiver != 0 }

// String returns the name of the role.
func (f roles) String() string { return [roleCount]string{"none", "sender", "receiver", "both"}[f] }
