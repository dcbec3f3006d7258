/** How long an entity is locked out of a method: at first, after a right code, after a day, and after an admin has unlocked it. */
import assert from 'node:assert/strict'
import { test } from 'node:test'
import { codeAt, stepAt } from '../../../src/engines/totp/codes.ts'
import { formOf, type TotpMethod } from '../../../src/secrets/mfa/mfa-method.ts'
import { verifyCode, lockedMs, newSecret, unlockSecret } from '../../../src/secrets/mfa/mfa-secret.ts'

const DAY_MS = 86_400_000
const ATTEMPTS_MAX = 3
const METHOD: TotpMethod = {
  id: 'method',
  name: 'app',
  position: 0,
  issuer: 'outpost',
  periodSeconds: 30,
  keyBytes: 20,
  qrPixels: 0,
  algorithm: 'SHA1',
  digits: 6,
  skew: 0,
  attemptsMax: ATTEMPTS_MAX,
  recoveryCodes: 1,
  needsConfirmation: false,
}

function opened() {
  let nowMs = 1_800_000_000_000
  const { key, recoveryCodes, secret: first } = newSecret(METHOD, nowMs)
  let secret = first
  const codeNow = () => codeAt(key, formOf(METHOD), stepAt(METHOD, nowMs))
  const send = (code: string) => {
    const verdict = verifyCode(secret, code, { nowMs, wallMs: nowMs }, ATTEMPTS_MAX)
    if ('after' in verdict) secret = verdict.after
    return verdict.kind
  }
  return {
    recovery: recoveryCodes[0] ?? '',
    codeNow,
    send,
    guess: () => send(codeNow() === '000000' ? '000001' : '000000'),
    pass: (ms: number) => (nowMs += ms),
    unlock: () => (secret = unlockSecret(secret)),
    /** Guesses until it is locked; how many that took, and for how many seconds it is. */
    lock() {
      for (let guesses = 1; ; guesses++) {
        assert.equal(this.guess(), 'wrong')
        if (lockedMs(secret, nowMs) > 0) return [guesses, lockedMs(secret, nowMs) / 1000]
      }
    },
    lockOver() {
      nowMs += lockedMs(secret, nowMs)
    },
  }
}

test('each lock-out is twice as long as the one before, an hour at most', () => {
  const own = opened()
  const lengths = Array.from({ length: 9 }, () => {
    const [guesses, seconds] = own.lock()
    assert.equal(guesses, ATTEMPTS_MAX)
    assert.deepEqual([own.guess(), own.send(own.codeNow())], ['locked', 'locked'])
    own.lockOver()
    return seconds
  })
  assert.deepEqual(lengths, [30, 60, 120, 240, 480, 960, 1920, 3600, 3600])
})

test('an accepted code, also a recovery code, resets the attempts and the length of lock-outs', () => {
  for (const kind of ['code', 'recovery code']) {
    const own = opened()
    for (let at = 0; at < 3; at++) {
      own.lock()
      own.lockOver()
    }
    own.guess()
    own.guess()
    assert.equal(own.send(kind === 'code' ? own.codeNow() : own.recovery), 'right', kind)
    assert.deepEqual([own.lock(), own.guess()], [[ATTEMPTS_MAX, 30], 'locked'], kind)
  }
})

test('the counters are reset one day after the last invalid code and not earlier', () => {
  for (const [ms, expected] of [
    [DAY_MS, [ATTEMPTS_MAX, 30]],
    [DAY_MS - 1, [ATTEMPTS_MAX - 1, 120]],
  ] as const) {
    const own = opened()
    for (let at = 0; at < 2; at++) {
      own.lock()
      own.lockOver()
    }
    own.guess()
    own.pass(ms)
    assert.deepEqual(own.lock(), expected, `${ms} ms later`)
  }
})

test('an unlocked entity has all attempts and the shortest lock-out', () => {
  const own = opened()
  for (let at = 0; at < 2; at++) {
    own.lock()
    own.lockOver()
  }
  own.lock()
  own.unlock()
  assert.deepEqual(own.lock(), [ATTEMPTS_MAX, 30])
})
