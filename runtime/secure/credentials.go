package secure

import (
	"bytes"
	"context"
	"crypto/sha256"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"io"
	"os"
	"time"

	"github.com/kvferry/kvferry/effects"
)

// credentials are what the files hold at a time. They do not change.
type credentials struct {
	pair   tls.Certificate
	name   string // our own identity
	pool   *x509.CertPool
	policy *Policy
	digest [sha256.Size]byte // of the content of all files
}

const (
	// settleTries is how many times the files are read until nobody is writing them any more, and settlePause the time
	// between two tries. A program that renews the files may replace one after the other, and may write them in place.
	settleTries = 20
	settlePause = 50 * time.Millisecond
)

// loadSettled reads all files, and reads them again while they look unfinished: if certificate and key are no pair, or a
// file is empty. If former is set, new content counts only when two reads find the same, because a policy that is half
// written may look complete. The error is that of ctx if ctx ends first.
func loadSettled(ctx context.Context, c *Config, former *credentials) (x *credentials, err error) {
	last := former
	for range settleTries {
		x, err = loadCredentials(c)
		switch {
		case err != nil && !errors.Is(err, errUnfinished):
			return nil, err
		case err == nil && (former == nil || x.digest == last.digest):
			return x, nil
		case err == nil:
			last = x
		}
		select {
		case <-time.After(settlePause):
		case <-ctx.Done():
			return nil, ctx.Err()
		}
	}
	return x, err
}

// errUnfinished is wrapped by errors of files that somebody may be writing.
var errUnfinished = errors.New("make the files anew, for example by kvferry certs")

// loadCredentials reads all files. The error names the key of the configuration, the file and what is wrong.
func loadCredentials(c *Config) (*credentials, error) {
	cert, err := readFile("security.cert", c.Cert)
	if err != nil {
		return nil, err
	}
	key, err := readFile("security.key", c.Key)
	if err != nil {
		return nil, err
	}
	ca, err := readFile("security.ca", c.CA)
	if err != nil {
		return nil, err
	}
	policy, err := readFile("security.policy", c.Policy)
	if err != nil {
		return nil, err
	}
	x := &credentials{pool: x509.NewCertPool(), digest: digestOf(cert, key, ca, policy)}
	// The error of X509KeyPair never quotes the key.
	if x.pair, err = tls.X509KeyPair(cert, key); err != nil {
		return nil, fmt.Errorf("security.cert %s and security.key %s are no pair (%w): %w", c.Cert, c.Key, errUnfinished, err)
	}
	if x.name, err = IdentityOf(x.pair.Leaf); err != nil {
		return nil, fmt.Errorf("security.cert %s: %w", c.Cert, err)
	}
	if now := c.Now(); now.After(x.pair.Leaf.NotAfter) {
		return nil, fmt.Errorf("security.cert %s ended at %s: renew it", c.Cert, x.pair.Leaf.NotAfter.UTC().Format(time.RFC3339))
	}
	if !x.pool.AppendCertsFromPEM(ca) {
		return nil, fmt.Errorf("security.ca %s has no certificate in PEM form (%w)", c.CA, errUnfinished)
	}
	if x.policy, err = ParsePolicy(policy); err != nil {
		return nil, fmt.Errorf("security.policy %s: %w", c.Policy, err)
	}
	return x, nil
}

func readFile(key, path string) ([]byte, error) {
	f, err := os.Open(path)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", key, err)
	}
	defer f.Close()
	data, err := io.ReadAll(io.LimitReader(f, maxFileBytes+1))
	switch {
	case err != nil:
		return nil, fmt.Errorf("%s: %w", key, err)
	case len(data) > maxFileBytes:
		return nil, fmt.Errorf("%s: %s is larger than %d bytes", key, path, maxFileBytes)
	case len(bytes.TrimSpace(data)) == 0:
		return nil, fmt.Errorf("%s: %s is empty (%w)", key, path, errUnfinished)
	}
	return data, nil
}

func digestOf(files ...[]byte) (sum [sha256.Size]byte) {
	h := sha256.New()
	for _, f := range files {
		d := sha256.Sum256(f)
		_, _ = h.Write(d[:])
	}
	h.Sum(sum[:0])
	return sum
}

// verify returns the peer whose certificates are given. Usage is the use of the peer's certificate.
func (x *credentials) verify(chain []*x509.Certificate, usage x509.ExtKeyUsage, now time.Time) (Peer, error) {
	if err := x.verifyChain(chain, x509.VerifyOptions{CurrentTime: now, KeyUsages: []x509.ExtKeyUsage{usage}}); err != nil {
		return Peer{}, err
	}
	return x.authorize(chain[0])
}

// believe returns the peer whose certificates are given, in mode Permissive, and reports false if the peer proved no
// identity. The peer has all roles, because a mistake in the policy must refuse nobody before mode Strict. It keeps its
// identity although its certificate has ended or lacks a usage: if the identity came and went with such details, the
// peer would be refused the names that it has proved to own. A peer without a certificate of a listed authority has
// proved nothing.
//
// With chunks: proven, the policy says which tenants' chunks the peer may touch; otherwise it may touch all, as in mode
// Off.
func (x *credentials) believe(chain []*x509.Certificate, now time.Time, provenChunks bool) (p Peer, ok bool) {
	usages := []x509.ExtKeyUsage{x509.ExtKeyUsageAny}
	if len(chain) == 0 || x.verifyChain(chain, x509.VerifyOptions{CurrentTime: clampToLife(now, chain[0]), KeyUsages: usages}) != nil {
		return Peer{}, false
	}
	name, err := IdentityOf(chain[0])
	if err != nil {
		return Peer{}, false
	}
	p = Peer{Name: name, Principal: principalOf(name), Roles: effects.AllRoles}
	if provenChunks {
		p.Tenants, p.Realm = x.policy.TenantsOf(name), realmOf(name, x.name)
	}
	return p, true
}

// clampToLife returns the time in the life of a certificate that is nearest to now.
func clampToLife(now time.Time, c *x509.Certificate) time.Time {
	switch {
	case now.Before(c.NotBefore):
		return c.NotBefore
	case now.After(c.NotAfter):
		return c.NotAfter
	}
	return now
}

// verifyServer verifies the certificates of a server that was dialled by a name.
func (x *credentials) verifyServer(chain []*x509.Certificate, name string, now time.Time) error {
	return x.verifyChain(chain, x509.VerifyOptions{CurrentTime: now, DNSName: name})
}

func (x *credentials) verifyChain(chain []*x509.Certificate, o x509.VerifyOptions) error {
	if len(chain) == 0 {
		return errors.New("the peer showed no certificate")
	}
	o.Roots, o.Intermediates = x.pool, x509.NewCertPool()
	for _, c := range chain[1:] {
		o.Intermediates.AddCert(c)
	}
	if _, err := chain[0].Verify(o); err != nil {
		return fmt.Errorf("the peer's certificate is not valid here: %w", err)
	}
	return nil
}

// authorize returns the peer that a verified certificate names, with its roles.
func (x *credentials) authorize(c *x509.Certificate) (Peer, error) {
	name, err := IdentityOf(c)
	if err != nil {
		return Peer{}, err
	}
	p := Peer{Name: name, Principal: principalOf(name), Roles: x.policy.RolesOf(name), Tenants: x.policy.TenantsOf(name),
		Realm: realmOf(name, x.name), countBy: x.policy.count}
	if p.Roles == 0 {
		return Peer{}, fmt.Errorf("the policy gives %q no role; add an entry for it to security.policy if it belongs to this fleet", name)
	}
	return p, nil
}
