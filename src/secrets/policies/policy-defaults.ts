/** The policies of a new core, and reserved names. */

const DEFAULT = `# Permissions of every token, unless it is created without this policy.

# Look up, renew and revoke the token itself
path "auth/token/lookup-self" {
  capabilities = ["read"]
}
path "auth/token/renew-self" {
  capabilities = ["update"]
}
path "auth/token/revoke-self" {
  capabilities = ["update"]
}

# Look up its own capabilities
path "sys/capabilities-self" {
  capabilities = ["update"]
}
path "sys/internal/ui/resultant-acl" {
  capabilities = ["read"]
}

# Read its own entity
path "identity/entity/id/{{identity.entity.id}}" {
  capabilities = ["read"]
}
path "identity/entity/name/{{identity.entity.name}}" {
  capabilities = ["read"]
}

# Renew and look up leases by ID; sys/renew is the path of old clients
path "sys/renew" {
  capabilities = ["update"]
}
path "sys/leases/renew" {
  capabilities = ["update"]
}
path "sys/leases/lookup" {
  capabilities = ["update"]
}

# Store values in its own cubbyhole
path "cubbyhole/*" {
  capabilities = ["create", "read", "update", "delete", "list"]
}

# Wrap values, look up wrapping tokens and unwrap responses
path "sys/wrapping/wrap" {
  capabilities = ["update"]
}
path "sys/wrapping/lookup" {
  capabilities = ["update"]
}
path "sys/wrapping/unwrap" {
  capabilities = ["update"]
}

# Hash values
path "sys/tools/hash" {
  capabilities = ["update"]
}
path "sys/tools/hash/*" {
  capabilities = ["update"]
}

# Authorize at an OIDC provider
path "identity/oidc/provider/+/authorize" {
  capabilities = ["read", "update"]
}
`

const RESPONSE_WRAPPING = `# Permissions of a wrapping token, for one use.
path "cubbyhole/response" {
  capabilities = ["create", "read"]
}
path "sys/wrapping/unwrap" {
  capabilities = ["update"]
}
`

export const DEFAULT_POLICIES: Readonly<Record<string, string>> = {
  default: DEFAULT,
  'response-wrapping': RESPONSE_WRAPPING,
}

/** Policies that cannot be written or deleted. */
export const FIXED_NAMES: ReadonlySet<string> = new Set(['root', 'response-wrapping'])

/** Policies that lists do not show. */
export const HIDDEN_NAMES: ReadonlySet<string> = new Set(['response-wrapping'])
