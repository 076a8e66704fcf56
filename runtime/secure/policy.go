package secure

import (
	"bytes"
	"crypto/sha256"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"slices"
	"strings"

	"go.yaml.in/yaml/v4"

	"github.com/kvferry/kvferry/effects"
)

// A Policy gives roles and tenants to identities. An identity that no entry names has no role.
type Policy struct {
	entries []policyEntry
	count   countBy
	// statesTenants is true if an entry has tenants. Otherwise all identities have all tenants.
	statesTenants bool
}

// countBy says what the shares and quotas of a machine count: how many identities and addresses are one unit.
type countBy uint8

const (
	// countHosts counts each identity at each address. A deployment often has one identity for all its processes, and
	// each host of the deployment then has a share of its own.
	countHosts countBy = iota
	// countIdentities counts each identity, from wherever its processes connect.
	countIdentities
)

// countNames are the values of `count` in a policy.
//
//kvferry:table
var countNames = [...]string{"host", "identity"}

type policyEntry struct {
	pattern pattern
	roles   effects.Roles
	tenants []effects.Tenant
	// allTenants says that the entry lists "*".
	allTenants bool
}

// A pattern is an identity of which each segment may be "*", which stands for exactly one segment. The segments of a
// URI are separated by slashes, and those of a DNS name by dots.
type pattern struct {
	text     string
	segments []string
}

// The limits of a policy file, which an administrator writes.
const (
	maxPolicyBytes   = 1 << 20
	maxPolicyEntries = 4096
	maxEntryTenants  = 256
)

// ParsePolicy reads a policy. The error names the entry, the value and the remedy.
func ParsePolicy(data []byte) (*Policy, error) {
	if len(data) > maxPolicyBytes {
		return nil, fmt.Errorf("the policy has %d bytes; at most %d are allowed: use patterns with *", len(data), maxPolicyBytes)
	}
	var file struct {
		Count      string `yaml:"count"`
		Identities []struct {
			Name    string   `yaml:"name"`
			Roles   []string `yaml:"roles"`
			Tenants []string `yaml:"tenants"`
		} `yaml:"identities"`
	}
	decoder := yaml.NewDecoder(bytes.NewReader(data))
	decoder.KnownFields(true)
	if err := decoder.Decode(&file); errors.Is(err, io.EOF) {
		return nil, errors.New("the policy is empty; list at least one identity below `identities`")
	} else if err != nil {
		return nil, fmt.Errorf("the policy is not the expected YAML (a list `identities` of `name`, `roles` and `tenants`, and `count`): %w", err)
	}
	p := &Policy{count: countHosts}
	if file.Count != "" {
		i := slices.Index(countNames[:], file.Count)
		if i < 0 {
			return nil, fmt.Errorf("count: %q is no unit of shares; write host (each identity at each address, the default) or identity",
				file.Count)
		}
		p.count = countBy(i)
	}
	switch n := len(file.Identities); {
	case n == 0:
		return nil, errors.New("the policy has no identities, so every peer would be refused; list at least one below `identities`")
	case n > maxPolicyEntries:
		return nil, fmt.Errorf("the policy has %d identities; at most %d are allowed: use patterns with *", n, maxPolicyEntries)
	}
	for i, x := range file.Identities {
		parsed, err := parsePattern(x.Name)
		if err != nil {
			return nil, fmt.Errorf("identities[%d].name: %w", i, err)
		}
		roles := effects.Roles(0)
		for _, name := range x.Roles {
			role, ok := effects.RoleNamed(name)
			if !ok {
				return nil, fmt.Errorf("identities[%d].roles: %q is no role; the roles are %s", i, name, effects.RoleNames())
			}
			roles |= role
		}
		if roles == 0 {
			return nil, fmt.Errorf("identities[%d].roles: %q has no role; give at least one of %s, or remove the entry", i, x.Name,
				effects.RoleNames())
		}
		entry := policyEntry{pattern: parsed, roles: roles}
		if err := entry.parseTenants(x.Tenants); err != nil {
			return nil, fmt.Errorf("identities[%d].tenants: %w", i, err)
		}
		p.entries, p.statesTenants = append(p.entries, entry), p.statesTenants || x.Tenants != nil
	}
	return p, nil
}

// parseTenants sets the tenants of an entry from their texts.
func (e *policyEntry) parseTenants(texts []string) error {
	switch {
	case texts == nil:
		e.tenants = []effects.Tenant{0}
	case len(texts) == 0:
		return errors.New("the list is empty; name tenants, write \"*\" for all, or remove the key")
	case len(texts) > maxEntryTenants:
		return fmt.Errorf("%d tenants; at most %d are allowed: write \"*\" for all", len(texts), maxEntryTenants)
	}
	for _, text := range texts {
		if text == "*" {
			e.allTenants = true
			continue
		}
		tenant, ok := effects.ParseTenant(text)
		if !ok {
			return fmt.Errorf("%q is no tenant; write default, the 16 hex digits that kvferry tenant prints for a cache salt, or \"*\" for all",
				text)
		}
		e.tenants = append(e.tenants, tenant)
	}
	return nil
}

// TenantsOf returns the tenants whose chunks an identity may touch: the tenants of all entries that match. It returns
// nil, which means all tenants, if no entry of the policy has tenants. If one has, an entry without tenants gives the
// default tenant only.
func (p *Policy) TenantsOf(name string) *effects.Tenants {
	if !p.statesTenants {
		return nil
	}
	segments := splitIdentity(name)
	var list []effects.Tenant
	for i := range p.entries {
		e := &p.entries[i]
		if !e.pattern.matches(segments) {
			continue
		}
		if e.allTenants {
			return nil
		}
		list = append(list, e.tenants...)
	}
	return effects.NewTenants(list...)
}

// RolesOf returns the roles of an identity: the roles of all entries that match.
func (p *Policy) RolesOf(name string) (roles effects.Roles) {
	segments := splitIdentity(name)
	for i := range p.entries {
		if p.entries[i].pattern.matches(segments) {
			roles |= p.entries[i].roles
		}
	}
	return roles
}

func parsePattern(text string) (pattern, error) {
	p := pattern{text: text, segments: splitIdentity(lowerHost(text))}
	for i, s := range p.segments {
		switch {
		case s == "" && (i != 1 || !strings.HasSuffix(p.segments[0], ":")): // A URI has an empty segment after its scheme.
			return p, fmt.Errorf("%q has an empty segment; write a URI such as spiffe://fleet/decode/*, or a DNS name such as "+
				"*.decode.example", text)
		case strings.Contains(s, "*") && s != "*":
			return p, fmt.Errorf("%q has * beside other characters; a * stands for a whole segment between slashes or dots", text)
		}
	}
	if len(p.segments) == 1 && p.segments[0] == "*" {
		return p, errors.New("* alone would match every identity of one segment; name the trust domain")
	}
	return p, nil
}

func (p *pattern) matches(segments []string) bool {
	if len(segments) != len(p.segments) {
		return false
	}
	for i, s := range p.segments {
		if s != "*" && s != segments[i] || s == "*" && segments[i] == "" {
			return false
		}
	}
	return true
}

// lowerHost returns an identity or a pattern with a lower-case DNS name, or with a lower-case scheme and host of the
// URI, because case does not distinguish these.
func lowerHost(name string) string {
	scheme, rest, isURI := strings.Cut(name, "://")
	if !isURI {
		if strings.Contains(name, "/") {
			return name
		}
		return strings.ToLower(name)
	}
	host, path, hasPath := strings.Cut(rest, "/")
	if hasPath {
		path = "/" + path
	}
	return strings.ToLower(scheme+"://"+host) + path
}

// splitIdentity returns the segments of an identity: of a URI between slashes, of a DNS name between dots. DNS names
// differ in their number of slashes from URIs, so that no pattern for one form matches an identity of the other.
func splitIdentity(name string) []string {
	if strings.Contains(name, "/") {
		return strings.Split(name, "/")
	}
	return strings.Split(name, ".")
}

// principalOf returns the number that machines use for an identity. It is a part of a cryptographic hash, because an
// authority may let the holder of a certificate choose a segment of the name.
func principalOf(name string) effects.Principal {
	sum := sha256.Sum256([]byte(name))
	return max(effects.Principal(binary.BigEndian.Uint64(sum[:])), 1)
}
