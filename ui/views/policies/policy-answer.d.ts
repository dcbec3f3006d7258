/** `src/secrets/policies/policy-answer.ts`, which the bundler inserts (`scripts/ui-bundle.ts`). */
declare module 'outpost/policy-answer' {
  export const answerPolicy: import('./policy-types.ts').AnswerPolicy
}
