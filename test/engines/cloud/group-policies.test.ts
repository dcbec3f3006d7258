/** Policies of groups, and how documents become one. */
import assert from 'node:assert/strict'
import { test } from 'node:test'
import { mergedPolicies, PolicyMergeError } from '../../../src/engines/cloud/aws/policy-document.ts'
import { CloudWorld } from '../../helpers/cloud-world.ts'

const statement = (action: string) => ({ Effect: 'Allow', Action: action, Resource: '*' })
const document = (...actions: string[]) =>
  JSON.stringify({ Id: 'x', Version: '2008-10-17', Statement: actions.map(statement) })

test('reads groups with managed, inline, both or no policies', async (t) => {
  const world = await CloudWorld.open(t)
  const { account } = world.aws
  const arn = account.addRole('r')
  const managed = 'arn:aws:iam::aws:policy/ReadOnlyAccess'
  account.addGroup('managed').attached.add(managed)
  account.addGroup('inline').inline.set('a', document('s3:Get*'))
  account.addGroup('more').inline.set('b', document('ec2:*', 'sqs:*'))
  const both = account.addGroup('both')
  both.attached.add(managed)
  both.inline.set('c', document('sns:*'))
  account.addGroup('none')
  const cases: readonly (readonly [groups: string, arns: readonly string[], actions: readonly string[]])[] = [
    ['managed', [managed], []],
    ['inline,more', [], ['s3:Get*', 'ec2:*', 'sqs:*']],
    ['both', [managed], ['sns:*']],
    ['none', [], []],
    ['', [], []],
  ]
  for (const [iam_groups, arns, actions] of cases) {
    await world.good('POST', 'cloud/roles/r', { credential_type: 'assumed_role', role_arns: arn, iam_groups })
    world.aws.journal.length = 0
    await world.good('GET', 'cloud/creds/r')
    const form = world.aws.journal.at(-1)?.form
    const policy = JSON.parse(form?.optional('Policy') ?? '{"Statement":[]}') as { Statement: { Action: string }[] }
    assert.deepEqual(form?.list('PolicyArns', 'arn'), arns, iam_groups)
    assert.deepEqual(
      policy.Statement.map(({ Action }) => Action),
      actions,
      iam_groups,
    )
    if (iam_groups === '') assert.deepEqual(world.aws.actions(), ['AssumeRole'], 'no group, no question')
  }
})

test("documents become one: their statements, in order, of today's version", () => {
  const one = { Version: '2012-10-17', Statement: [statement('s3:*')] }
  assert.equal(mergedPolicies([document('s3:*')]), JSON.stringify(one))
  assert.equal(mergedPolicies([document('s3:*'), ' ', '']), JSON.stringify(one), 'empty ones are left out')
  const two = { ...one, Statement: [statement('a:*'), statement('b:*')] }
  assert.equal(mergedPolicies([document('a:*'), document('b:*')]), JSON.stringify(two))
  assert.equal(
    mergedPolicies([JSON.stringify({ Statement: statement('s3:*') })]),
    JSON.stringify(one),
    'one that is no list',
  )
  const not = { Effect: 'Deny', NotAction: 'iam:*', Resource: '*' }
  assert.equal(mergedPolicies([JSON.stringify({ Statement: [not] })]), JSON.stringify({ ...one, Statement: [not] }))
  for (const wrong of ['{', '5', '{}', '{"Statement":5}'])
    assert.throws(() => mergedPolicies([wrong]), PolicyMergeError, wrong)
})
