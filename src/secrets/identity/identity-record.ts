/** The stored records of entities, aliases and groups, and their paths. */
import * as v from 'valibot'
import { textRecord } from '../../engines/framework/records.ts'
import { parseRecord } from '../../platform/stored-record.ts'

export const IDENTITY_PREFIX = 'sys/identity/'

const aliasSchema = v.object({
  id: v.string(),
  name: v.string(),
  mountAccessor: v.string(),
  /** Set by the auth method at each login. */
  metadata: v.nullable(textRecord),
  /** Set by operators. */
  customMetadata: v.nullable(textRecord),
  createdAtMs: v.number(),
  updatedAtMs: v.number(),
  /** IDs of merged entities that had this alias. */
  mergedFrom: v.array(v.string()),
  /** For an alias of an entity: names of the groups that the auth method reported at the last login or renewal. */
  groups: v.optional(v.array(v.string()), []),
})

const commonFields = {
  id: v.string(),
  name: v.string(),
  metadata: v.nullable(textRecord),
  policies: v.array(v.string()),
  createdAtMs: v.number(),
  updatedAtMs: v.number(),
}

const entitySchema = v.object({
  format: v.literal(1),
  ...commonFields,
  disabled: v.boolean(),
  aliases: v.array(aliasSchema),
  /** IDs of entities that were merged into this one. */
  mergedIds: v.array(v.string()),
})

const groupSchema = v.object({
  format: v.literal(1),
  ...commonFields,
  type: v.picklist(['internal', 'external']),
  memberEntityIds: v.array(v.string()),
  memberGroupIds: v.array(v.string()),
  parentGroupIds: v.array(v.string()),
  alias: v.nullable(aliasSchema),
  /** Number of changes. */
  modifyIndex: v.number(),
})

export type Alias = v.InferOutput<typeof aliasSchema>
export type Entity = v.InferOutput<typeof entitySchema>
export type IdentityGroup = v.InferOutput<typeof groupSchema>

/** The display name of an entity: its name or, if that was generated, the name of its first alias. */
export function accountName(entity: Entity | undefined): string | undefined {
  if (!entity) return undefined
  const isGenerated = entity.name === `entity_${entity.id}`
  return isGenerated ? entity.aliases[0]?.name : entity.name
}

export function encodeIdentity(record: Entity | IdentityGroup): Buffer {
  return Buffer.from(JSON.stringify(record))
}

/** Throws a Fault for a damaged entry. */
export function parseEntity(bytes: Buffer): Entity {
  return parseRecord(entitySchema, bytes, 'an entity')
}

/** Throws a Fault for a damaged entry. */
export function parseGroup(bytes: Buffer): IdentityGroup {
  return parseRecord(groupSchema, bytes, 'a group')
}

/** Paths contain random IDs and keyed hashes only, no names. The value of an index entry is an ID. */
export const identityPaths = {
  salt: 'salt',
  entities: 'entity/',
  entity: (id: string) => `entity/${id}`,
  entityName: (hash: string) => `entity-name/${hash}`,
  /** By the ID of a merged entity: the entity that it was merged into. */
  merged: (id: string) => `merged/${id}`,
  aliases: 'alias-id/',
  aliasId: (id: string) => `alias-id/${id}`,
  alias: (hash: string) => `alias/${hash}`,
  groups: 'group/',
  group: (id: string) => `group/${id}`,
  groupName: (hash: string) => `group-name/${hash}`,
  groupAliases: 'group-alias-id/',
  groupAliasId: (id: string) => `group-alias-id/${id}`,
  groupAlias: (hash: string) => `group-alias/${hash}`,
  /** Entities that an auth method reports as members of a group, by the hash of the group's alias. */
  reported: (hash: string) => `reported/${hash}/`,
  /** Internal groups with an entity as a direct member. */
  memberships: (entityId: string) => `member/${entityId}/`,
  membership: (entityId: string, groupId: string) => `member/${entityId}/${groupId}`,
} as const
