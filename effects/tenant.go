package effects

import (
	"crypto/sha256"
	"encoding/binary"
	"encoding/hex"
	"slices"
	"strconv"
	"strings"
)

// Tenant names the tenant to which a chunk belongs: a digest of the cache salt of the tenant's requests, so that nobody
// who sees a key learns the salt. The tenant is a part of the text of the chunk's key (protocol.TenantOf). Zero is the
// default tenant, to which all chunks of requests without a salt belong.
type Tenant uint64

// defaultTenant is the text of the default tenant.
const defaultTenant = "default"

// TenantOfSalt returns the tenant of the requests with a cache salt. Requests without a salt are of the default tenant.
func TenantOfSalt(salt string) Tenant {
	if salt == "" {
		return 0
	}
	sum := sha256.Sum256([]byte(salt))
	return max(1, Tenant(binary.BigEndian.Uint64(sum[:])))
}

// ParseTenant parses a tenant as String writes it, and reports false for any other text.
func ParseTenant(text string) (t Tenant, ok bool) {
	if text == defaultTenant {
		return 0, true
	}
	v, err := strconv.ParseUint(text, 16, 64)
	t = Tenant(v)
	return t, err == nil && t != 0 && t.String() == text
}

// String returns "default", or the digest as 16 lower-case hex digits.
func (t Tenant) String() string {
	if t == 0 {
		return defaultTenant
	}
	var b [8]byte
	binary.BigEndian.PutUint64(b[:], uint64(t))
	return hex.EncodeToString(b[:])
}

// Tenants is an immutable set of tenants. A nil *Tenants is the set of all tenants: it is the set of peers that nobody
// authenticated because security is off, and of peers whose policy does not mention tenants.
type Tenants struct {
	only []Tenant // sorted, without duplicates
}

// NewTenants returns the set of the given tenants.
func NewTenants(list ...Tenant) *Tenants {
	only := slices.Clone(list)
	slices.Sort(only)
	return &Tenants{slices.Compact(only)}
}

// Has reports whether a tenant is in the set.
func (s *Tenants) Has(t Tenant) bool {
	if s == nil {
		return true
	}
	_, found := slices.BinarySearch(s.only, t)
	return found
}

// Equal reports whether two sets have the same tenants.
func (s *Tenants) Equal(other *Tenants) bool {
	if s == nil || other == nil {
		return s == other
	}
	return slices.Equal(s.only, other.only)
}

// tenantsShown is how many tenants String lists.
const tenantsShown = 4

// String returns the tenants, joined by commas, "all" or "none". It lists only the first few tenants of a large set.
func (s *Tenants) String() string {
	switch {
	case s == nil:
		return "all"
	case len(s.only) == 0:
		return "none"
	}
	var texts []string
	for i, t := range s.only {
		if i == tenantsShown {
			texts = append(texts, "and "+strconv.Itoa(len(s.only)-i)+" more")
			break
		}
		texts = append(texts, t.String())
	}
	return strings.Join(texts, ",")
}

// Realm names the trust domain of a peer, as far as the connection proved it: zero is this node's own domain, 1 stands
// for peers that proved nothing, and each other domain has a hash of its name. No message states a realm, because a
// stated realm would prove nothing.
type Realm uint64

// RealmUnproven is the realm of peers that proved no identity, at a node that tells them from its own domain.
const RealmUnproven Realm = 1
