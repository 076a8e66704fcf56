package effects

import "testing"

// A tenant has one text, and the text names the digest of the salt and not the salt.
func TestTenantText(t *testing.T) {
	// The digest that other implementations compute: the first 8 bytes of SHA-256.
	if got := TenantOfSalt("salt-of-a").String(); got != "76eff33a338b6205" {
		t.Errorf("the tenant of a salt is %s", got)
	}
	for text, want := range map[string]Tenant{
		"default": 0, "0000000000000001": 1, "9f86d081884c7d65": 0x9f86d081884c7d65, "ffffffffffffffff": 1<<64 - 1,
	} {
		if got, ok := ParseTenant(text); !ok || got != want || got.String() != text {
			t.Errorf("%s is %v, %v", text, got, ok)
		}
	}
	for _, text := range []string{"", "0", "0000000000000000", "1", "00000000000000001", "9F86d081884c7d65", "+f86d081884c7d65",
		"0x86d081884c7d65", "9f86_081884c7d65", "Default", "*", " default"} {
		if got, ok := ParseTenant(text); ok {
			t.Errorf("%q is taken for tenant %v", text, got)
		}
	}
	if TenantOfSalt("") != 0 {
		t.Error("a request without a salt is of a tenant")
	}
}

func TestTenantsAreSets(t *testing.T) {
	var all *Tenants
	some, none := NewTenants(7, 0, 7, 3), NewTenants()
	for tenant, want := range map[Tenant]bool{0: true, 3: true, 7: true, 1: false, 8: false, 1<<64 - 1: false} {
		if some.Has(tenant) != want || !all.Has(tenant) || none.Has(tenant) {
			t.Errorf("tenant %d: %v, %v, %v", tenant, some.Has(tenant), all.Has(tenant), none.Has(tenant))
		}
	}
	for _, x := range []struct {
		a, b *Tenants
		want bool
	}{
		{all, nil, true}, {all, none, false}, {none, NewTenants(), true}, {some, NewTenants(3, 7, 0), true},
		{some, NewTenants(3, 7), false},
	} {
		if x.a.Equal(x.b) != x.want || x.b.Equal(x.a) != x.want {
			t.Errorf("%v and %v: equal is %v", x.a, x.b, x.a.Equal(x.b))
		}
	}
	for text, s := range map[string]*Tenants{
		"all": all, "none": none, "default,0000000000000003,0000000000000007": some,
		"default,0000000000000001,0000000000000002,0000000000000003,and 2 more": NewTenants(0, 1, 2, 3, 4, 5),
	} {
		if s.String() != text {
			t.Errorf("%q reads %q", text, s)
		}
	}
}
