/** What is kept of entities, aliases and groups, where, and how it is written. */
import * as v from 'valibot'
import { textRecord } from '../../engines/framework/records.ts'
import { Fault } from '../../platform/errors.ts'

export const IDENTITY_PREFIX = 'sys/identity/'

const aliasSchema = v.object({
  id: v.string(),
  name: v.string(),
  mountAccessor: v.string(),
  /** What the auth method says of it at each login. */
  metadata: v.nullable(textRecord),
  /** What operators say of it. */
  customMetadata: v.nullable(textRecord),
  createdAtMs: v.number(),
  updatedAtMs: v.number(),
  /** Entities that it belonged to before these were merged. */
  mergedFrom: v.array(v.string()),
  /** Of an entity's alias: names of the groups that the auth method reported with the last login or renewal. */
  groups: v.optional(v.array(v.string()), []),
})

const facts = {
  id: v.string(),
  name: v.string(),
  metadata: v.nullable(textRecord),
  policies: v.array(v.string()),
  createdAtMs: v.number(),
  updatedAtMs: v.number(),
}

const entitySchema = v.object({
  format: v.literal(1),
  ...facts,
  disabled: v.boolean(),
  aliases: v.array(aliasSchema),
  /** IDs of entities that became a part of this one. */
  mergedIds: v.array(v.string()),
})

const groupSchema = v.object({
  format: v.literal(1),
  ...facts,
  type: v.picklist(['internal', 'external']),
  memberEntityIds: v.array(v.string()),
  memberGroupIds: v.array(v.string()),
  parentGroupIds: v.array(v.string()),
  alias: v.nullable(aliasSchema),
  /** How often it was changed. */
  modifyIndex: v.number(),
})

export type Alias = v.InferOutput<typeof aliasSchema>
export type Entity = v.InferOutput<typeof entitySchema>
export type Group = v.InferOutput<typeof groupSchema>

/** What people call an entity: its name, or where that was made from its ID, the name of its first alias. */
export function accountName(entity: Entity | undefined): string | undefined {
  if (!entity) return undefined
  const isMade = entity.name === `entity_${entity.id}`
  return isMade ? entity.aliases[0]?.name : entity.name
}

export function encodeIdentity(record: Entity | Group): Buffer {
  return Buffer.from(JSON.stringify(record))
}

/** Throws a Fault for an entry that is damaged. */
export function parseEntity(bytes: Buffer): Entity {
  const parsed = v.safeParse(v.pipe(v.string(), v.parseJson(), entitySchema), bytes.toString('utf8'))
  if (!parsed.success) throw new Fault('the entry of an entity is damaged')
  return parsed.output
}

/** Throws a Fault for an entry that is damaged. */
export function parseGroup(bytes: Buffer): Group {
  const parsed = v.safeParse(v.pipe(v.string(), v.parseJson(), groupSchema), bytes.toString('utf8'))
  if (!parsed.success) throw new Fault('the entry of a group is damaged')
  return parsed.output
}

/** Entries by their paths: random IDs and keyed hashes, so that no name shows. The value of an index entry is an ID. */
export const identityPaths = {
  salt: 'salt',
  entities: 'entity/',
  entity: (id: string) => `entity/${id}`,
  entityName: (hash: string) => `entity-name/${hash}`,
  /** An entity that was merged: the one that it is a part of. */
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
  /** Entities that an auth method reports as members of a group: the hash is that of the group's alias. */
  reported: (hash: string) => `reported/${hash}/`,
  /** Internal groups that an entity is a member of by its own ID. */
  memberships: (entityId: string) => `member/${entityId}/`,
  membership: (entityId: string, groupId: string) => `member/${entityId}/${groupId}`,
} as const
