// Package secure authenticates and encrypts the connections between processes by mutual TLS 1.3.
//
// A [Guard] holds the process's certificate, the certificates of the authorities that it trusts, and a policy that
// gives roles to identities. The guard reads the files again when they change, so that certificates are renewed while
// connections are open. [Guard.Accept] and [Guard.Connect] turn a connection into one whose peer is known:
//
//	guard, err := secure.Open(secure.Config{Mode: secure.Strict, Cert: "tls.crt", Key: "tls.key", CA: "ca.crt",
//		Policy: "policy.yaml"})
//	conn, peer, err := guard.Accept(conn, secure.FaceControl, effects.RoleDecode)
//	fmt.Println(peer.Name) // spiffe://fleet/decode/7
//
// The identity of a peer is the URI in its certificate (a SPIFFE ID, for example) or, without a URI, the first DNS
// name. The policy maps identities to roles; an identity without a role is refused:
//
//	identities:
//	  - name: spiffe://fleet/prefill/*    # each * stands for one segment
//	    roles: [prefill]
//	  - name: "*.decode.example"
//	    roles: [decode]
//
// There are three modes, so that a fleet can change over without a moment at which every process restarts:
//
//   - Off: connections are plain. Every process that reaches a port is believed.
//   - Permissive: a server takes both kinds, and distinguishes them by the first byte, because a TLS record of a
//     handshake begins with 0x16 and no protocol of kvferry does. A client tries TLS first, and plain if the server
//     answers without TLS. An attacker between the two can force that; the mode is for migrations only. A peer that
//     Strict would refuse is accepted and logged, and all peers have all roles.
//   - Strict: both ends accept TLS only, except from the networks of Config.Plain.
//
// A connection is closed when the policy gives its peer no role any more, or when the certificate that the peer showed
// ended more than [ExpiryGrace] ago. Long-lived connections therefore must be made anew once in the life of a
// certificate, as after any loss.
package secure
